"""Look known vulnerabilities up: `audit.py REQUIREMENTS ...`, by pip-audit.

Ends with 0 if every package was looked up and none is known, with 1 if there are some, and with 3
if the advisories of some packages, or all, could not be had: then nothing is known about these.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FOUND, UNKNOWN = 1, 3


def verdict(packages: list[dict[str, Any]]) -> tuple[str, int]:
    """What pip-audit found, in words and as an exit status."""
    found = [one for one in packages if one.get("vulns")]
    skipped = [one for one in packages if "skip_reason" in one]
    lines = [
        f"{one['name']} {one['version']}: {flaw['id']}"
        f" (mended in {', '.join(flaw['fix_versions']) or 'no release'})"
        for one in found
        for flaw in one["vulns"]
    ]
    if skipped or not packages:
        lines.append(
            f"not audited: the advisories of {len(skipped)} of {len(packages)} packages could not"
            " be had, so nothing is known about these"
        )
        lines += sorted({f"  {one['skip_reason']}" for one in skipped})[:3]
    if found:
        return "\n".join(lines), FOUND
    if lines:
        return "\n".join(lines), UNKNOWN
    return f"no vulnerability is known of {len(packages)} packages", 0


def asked(file: str) -> list[dict[str, Any]] | str:
    """What pip-audit says of each requirement in a file, or why it says nothing."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        command = [sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip"]
        command += ["--format", "json", "--output", str(answer), "--progress-spinner", "off"]
        command += ["--requirement", file]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.exists() and (text := answer.read_text()):
            packages: list[dict[str, Any]] = json.loads(text)["dependencies"]
            return packages
    return (done.stderr.strip() or "no answer").splitlines()[-1][:300]


def audit(files: list[str]) -> tuple[str, int]:
    """Ask the service of advisories about every requirement of all files."""
    answers = {file: asked(file) for file in files}
    silent = [
        f"not audited: pip-audit has no answer for {file} ({said})"
        for file, said in answers.items()
        if isinstance(said, str)
    ]
    packages = [one for said in answers.values() if not isinstance(said, str) for one in said]
    if silent and not packages:
        return "\n".join(silent), UNKNOWN
    words, status = verdict(packages)
    return "\n".join([*silent, words]), UNKNOWN if silent and not status else status


if __name__ == "__main__":
    words, status = audit(sys.argv[1:])
    print(words, file=sys.stderr if status else sys.stdout)
    sys.exit(status)
