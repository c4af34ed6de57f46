"""Link what a wheel declares, and nothing else, from this environment into another one.

`link_requirements.py WHEEL SITE_PACKAGES [EXTRA ...]` follows the requirements in the wheel's
METADATA, as pip would, over the distributions that are installed here.
"""

import sys
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement


def active(lines: list[str] | None, extras: set[str]) -> list[Requirement]:
    """Requirements that hold on this machine with these extras."""
    found = [Requirement(line) for line in lines or ()]
    return [
        one
        for one in found
        if one.marker is None
        or any(one.marker.evaluate({"extra": extra}) for extra in (extras or {""}))
    ]


def closure(lines: list[str], extras: set[str]) -> dict[str, metadata.Distribution]:
    """Distributions that are required, directly or by another one, by their names."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    open_ = active(lines, extras)
    while open_:
        one = open_.pop()
        if (one.name, frozenset(one.extras)) in seen:
            continue
        seen.add((one.name, frozenset(one.extras)))
        dist = metadata.distribution(one.name)
        if not one.specifier.contains(dist.version, prereleases=True):
            sys.exit(f"{one} is required, but {dist.version} is installed")
        found[dist.name] = dist
        open_ += active(dist.requires, one.extras)
    return found


def tops(dist: metadata.Distribution) -> set[str]:
    """Files and folders of a distribution in site-packages."""
    parts = {PurePosixPath(file).parts[0] for file in dist.files or ()}
    return parts - {"..", "__pycache__"}


def link(wheel: str, site: str, *extras: str) -> None:
    """Link the files of all that the wheel requires with these extras."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        lines = Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist", [])
    required = closure(lines, set(extras))
    others = {
        top
        for dist in metadata.distributions()
        if dist.name not in required and dist.name != "prerank"
        for top in tops(dist)
    }
    for dist in required.values():
        if shared := tops(dist) & others:
            sys.exit(f"{dist.name} shares {', '.join(sorted(shared))} with what is not required")
        for top in tops(dist):
            to = Path(site, top)
            if not to.exists():
                to.symlink_to(Path(str(dist.locate_file(top))).absolute())


if __name__ == "__main__":
    link(*sys.argv[1:])
