"""The lock: exact versions, every file by its hash, for every Python and platform declared."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import lock
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FILES = sorted(path.name for path in ROOT.glob("requirements*.txt"))


def locked(file):
    return lock.blocks((ROOT / file).read_text())


@pytest.mark.parametrize("file", FILES)
def test_every_requirement_is_exact_and_has_hashes(file):
    """Hash mode of pip needs all of them; a line that `blocks` does not know would be lost."""
    text = re.sub(r"^#.*\n", "", (ROOT / file).read_text(), flags=re.MULTILINE)
    found = locked(file)
    assert text == "".join(f"{block}\n" for block in found.values())
    for block in "\n".join(found.values()).split("\n"):
        assert re.fullmatch(
            r"[a-z0-9-]+==\S+( ; .+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?", block
        ), block
    assert all("--hash=sha256:" in block for block in found.values())


FORK = """\
one==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
two==2.0 ; python_full_version < '3.14' \\
    --hash=sha256:cc
two==3.0 ; python_full_version >= '3.14' \\
    --hash=sha256:dd
"""


def test_a_package_with_a_version_for_each_python_keeps_both():
    found = lock.blocks(FORK)
    assert list(found) == ["one", "two"]
    assert "".join(f"{block}\n" for block in found.values()) == FORK
    assert lock.plain(found).splitlines() == [
        "one==1.0",
        "two==2.0 ; python_full_version < '3.14'",
        "two==3.0 ; python_full_version >= '3.14'",
    ]


def environments():
    """The markers of each Python and platform that is declared."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        classifiers = tomllib.load(file)["project"]["classifiers"]
    pythons = [one.rpartition(" ")[2] for one in classifiers if re.search(r":: 3\.\d+$", one)]
    assert pythons
    for python in pythons:
        for system, machine in [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")]:
            yield {
                "python_version": python,
                "python_full_version": f"{python}.7",
                "sys_platform": system,
                "platform_system": system.capitalize(),
                "platform_machine": machine,
            }


def exact(blocks, environment):
    """Versions by name, as pip takes them in an environment."""
    lines = lock.plain(blocks).splitlines()
    all_ = [Requirement(line) for line in lines]
    here = [one for one in all_ if one.marker is None or one.marker.evaluate(environment)]
    return {canonicalize_name(one.name): next(iter(one.specifier)).version for one in here}


def missing(environment):
    """What prerank with its tools needs in an environment and the lock does not have."""
    base = locked("requirements.txt") | locked("requirements-torch.txt")
    versions = exact(base, environment)
    found, open_ = set(), [("prerank", ("dev",))]
    while open_:
        name, extras = open_.pop()
        if (name, extras) in found:
            continue
        found.add((name, extras))
        for line in metadata.distribution(name).requires or ():
            one = Requirement(line)
            marks = [environment | {"extra": extra} for extra in (*extras, "")]
            if one.marker and not any(one.marker.evaluate(mark) for mark in marks):
                continue
            other = canonicalize_name(one.name)
            if other != "prerank" and not one.specifier.contains(versions.get(other, "0a0"), True):
                yield f"{name} needs {line}, locked is {versions.get(other)}"
            else:
                open_.append((other, tuple(sorted(one.extras))))


ENVIRONMENTS = {"-".join(one.values()): one for one in environments()}


@pytest.mark.parametrize("environment", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_the_lock_is_whole_for_every_python_and_platform(environment):
    """By the metadata of what is installed here; CUDA packages belong to other builds of torch."""
    assert [line for line in missing(environment) if "cuda" not in line] == []
