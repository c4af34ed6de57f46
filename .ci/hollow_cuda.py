"""Let a CUDA build of torch run on the CPU without the CUDA packages: `hollow_cuda.py UV`.

It is run by the interpreter of the environment, for tests on Linux, and spares some GB. The runtime
and the profiler of CUDA are small and real; every other library that torch names is empty, and is
never called without a GPU. Functions are therefore looked up when they are first called
(RTLD_LAZY), not at the import; data are looked up at once, so the empty libraries define those.
Other builds stay as they are.
"""

import re
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

LAZY = "import os, sys; sys.setdlopenflags(os.RTLD_LAZY)\n"


def told(*command: str | Path) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def needed(library: Path) -> set[str]:
    """Names of the shared libraries that a library names."""
    return set(re.findall(r"NEEDED\s+(\S+)", told("objdump", "-p", library)))


def data(library: Path) -> set[str]:
    """Names that a library looks up in CUDA libraries as soon as it is loaded."""
    lines = told("objdump", "-R", library).splitlines()
    now = "\n".join(line for line in lines if "JUMP_SLOT" not in line)
    return set(re.findall(r" ((?:cu|nv|nccl)\w+)@(?!@|Base)", now))


def defined(library: Path) -> set[str]:
    """Names that a library has for others."""
    return set(re.findall(r" (\w+)(?:@\S*)?$", told("nm", "-D", "--defined-only", library), re.M))


def main(uv: str) -> None:
    """Install what is small, and stand in for the rest."""
    toolkit = [
        line for line in metadata.requires("torch") or () if line.startswith("cuda-toolkit[")
    ]
    if sys.platform != "linux" or not toolkit:
        return
    [version] = re.findall(r"==([\d.]+)", toolkit[0])
    install = (uv, "pip", "install", "--python", sys.executable)
    subprocess.run([*install, f"cuda-toolkit[cudart,cupti]=={version}"], check=True)
    site = Path(sysconfig.get_path("purelib"))
    (site / "lazy_symbols.pth").write_text(LAZY)
    folder = site / "torch" / "lib"
    torch, real = list(folder.glob("*.so")), list((site / "nvidia").rglob("*.so*"))
    there = {path.name for path in (*folder.iterdir(), *real)}
    names = set().union(*map(needed, torch)) - there
    missing = set().union(*map(data, torch)) - set().union(*map(defined, real))
    source = folder / "hollow.c"
    source.write_text("".join(f"char {name}[4096];\n" for name in sorted(missing)))
    for name in sorted(names):
        if re.match(r"lib(cu|nv|nccl)", name):
            told("cc", "-shared", f"-Wl,-soname,{name}", "-o", folder / name, source)


if __name__ == "__main__":
    main(sys.argv[1])
