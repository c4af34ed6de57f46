"""Write requirements*.txt: exact versions with the SHA-256 of every file of each.

`lock.py --uv UV --torch VERSION [--keep]` resolves pyproject.toml for all platforms and Pythons at
once, from the newest releases, or with `--keep` from the versions that the files have now. The
comments at the top of each file stay.
"""

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Builds of torch for the CPU alone that the registry does not have, with their files: they are
# taken where pip's settings name a folder that has one.
CPU_BUILDS = {
    "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl": (
        "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
    ),
}

# Environments that lie over .venv: what they add, and the packages of .venv that they replace.
OVER: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "adapters": (("ngboost", "sbi", "lightning", "torchmetrics"), ()),
    "skpro": (("skpro",), ("pandas",)),
    # Left alone, darts goes back to a numba of 2020.
    "forecasts": (
        ("gluonts", "darts", "numba>=0.61", "arviz", "arviz-base", "bayesflow", "numpyro"),
        ("pandas", "toolz"),
    ),
    "compiled": (("numba",), ()),
    "supply": (
        ("cyclonedx-python-lib[json-validation]", "pip-audit", "zizmor", "check-jsonschema"),
        (),
    ),
}

Blocks = dict[str, str]


def blocks(text: str) -> Blocks:
    """The requirements of a file with their hashes, by name; Pythons may need different ones."""
    lines = re.findall(r"^(([a-z0-9][^=\s]*)==.*?(?<!\\))$", text, flags=re.DOTALL | re.MULTILINE)
    found: Blocks = {}
    for block, name in lines:
        found[name] = "\n".join([*found.get(name, "").splitlines(), block])
    return found


def plain(some: Blocks) -> str:
    """The requirements without their hashes."""
    return "".join(re.sub(r" \\\n *--hash=\S+", "", block) + "\n" for block in some.values())


def path_of(name: str) -> Path:
    """The file of an environment."""
    return ROOT / f"requirements{name and '-' + name}.txt"


def write(name: str, some: Blocks) -> None:
    """Replace the requirements of a file, below its first comments."""
    path = path_of(name)
    head = re.match(r"(#.*\n)*", path.read_text() if path.exists() else "")
    path.write_text((head[0] if head else "") + "".join(f"{one}\n" for one in some.values()))


def with_cpu_builds(block: str, version: str) -> str:
    """The requirement of torch with the hashes of builds from elsewhere."""
    more = [sha for file, sha in CPU_BUILDS.items() if file.startswith(f"torch-{version}+")]
    return " \\\n".join([block, *(f"    --hash=sha256:{sha}" for sha in more)])


def resolve(uv: str, source: str, known: str, *words: str) -> Blocks:
    """What `source` needs, with hashes; the versions in `known` are preferred."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "requirements.txt")
        out.write_text(known)
        command = [uv, "pip", "compile", source, "--universal", "--python-version", "3.11"]
        command += ["--fork-strategy", "fewest", "--generate-hashes", "--quiet", *words]
        command += ["--no-annotate", "--no-header", "--output-file", str(out)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return blocks(out.read_text())


def is_cuda(name: str) -> bool:
    """Whether only builds of torch for GPUs need the package."""
    return name.startswith(("cuda-", "nvidia-", "triton"))


def lock(uv: str, torch: str, keep: bool) -> None:
    """Resolve, split, and write every file."""
    files = ("", "torch", "cuda", *OVER)
    now = {name: path_of(name) for name in files}
    had = {name: blocks(path.read_text()) if path.exists() else {} for name, path in now.items()}
    with tempfile.TemporaryDirectory() as folder:
        pin, asked = Path(folder, "pin.txt"), Path(folder, "asked.in")
        pin.write_text(f"torch=={torch}\n")
        base = {name: block for part in ("", "torch", "cuda") for name, block in had[part].items()}
        words = ["--constraints", str(pin)]
        known = plain(base) if keep else ""
        found = resolve(uv, "pyproject.toml", known, "--extra", "dev", *words)
        for name, (needs, replaced) in OVER.items():
            pin.write_text(plain({k: v for k, v in found.items() if k not in replaced}))
            asked.write_text("\n".join(needs) + "\n")
            over = resolve(uv, str(asked), plain(had[name]) if keep else "", *words)
            new = {k: v for k, v in over.items() if k not in found or k in replaced}
            new.pop("pip", None)  # every environment has one
            write(name, new)
    write("torch", {"torch": with_cpu_builds(found.pop("torch"), torch)})
    write("cuda", {name: block for name, block in found.items() if is_cuda(name)})
    write("", {name: block for name, block in found.items() if not is_cuda(name)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uv", default="uv")
    parser.add_argument("--torch", required=True)
    parser.add_argument("--keep", action="store_true", help="write the same versions again")
    given = parser.parse_args()
    lock(given.uv, given.torch, given.keep)
