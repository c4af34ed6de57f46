"""Damaged files for every way in: only documented errors, no crash, no hang, no escape.

    PYTHONPATH=tests python -m fuzz.run --cases 10000 --seed 0 [--entry import] [--keep FOLDER]

A case is a function of the entry's name, the seed and its number, so that `--only NUMBER` runs it
again. The file is kept before it is read and removed after it, so that the one that fails, or ends
the process, stays; a failure is printed with the last call.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from fuzz import sandbox
from fuzz.entries import ENTRIES, Entry
from fuzz.mutations import mutate
from prerank.errors import PrerankError


def main() -> int:
    """Run cases; 1 where one fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--entry", choices=ENTRIES, action="append")
    parser.add_argument("--only", type=int)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    failed = 0
    corpora = {name: ENTRIES[name].corpus() for name in options.entry or ENTRIES}
    options.keep.mkdir(parents=True, exist_ok=True)
    sandbox.build()
    for name, corpus in corpora.items():
        numbers = range(options.cases) if options.only is None else [options.only]
        begun, sound, refused = time.monotonic(), 0, 0
        for number in numbers:
            outcome = case(name, ENTRIES[name], corpus, options.seed, number, options.keep)
            sound += outcome == "sound"
            refused += outcome == "refused"
        bad = len(numbers) - sound - refused
        failed += bad
        print(
            f"{name}: {len(numbers)} cases from seed {options.seed}, {refused} refused, {sound} "
            f"read, {bad} failed, {time.monotonic() - begun:.0f} s",
            flush=True,
        )
    if not failed:
        options.keep.rmdir()
    return int(failed > 0)


def case(
    name: str, entry: Entry, corpus: dict[str, bytes], seed: int, number: int, keep: Path
) -> str:
    """One damaged file: what became of it."""
    rng = random.Random(f"{name} {seed} {number}")
    which = rng.choice(sorted(corpus))
    others = [corpus[other] for other in sorted(corpus)]
    data = mutate(corpus[which], rng, others, Path(which).suffix)
    kept = keep / f"{name}-{seed}-{number}-{which}"
    kept.write_bytes(data)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        for other, content in corpus.items():
            (folder / other).write_bytes(data if other == which else content)
        entry.seal(folder, which)
        with sandbox.walls(folder):
            entry.use(folder, which)
    except PrerankError:
        kept.unlink()
        return "refused"
    except (Exception, sandbox.Escape, sandbox.Hang) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        inner = [
            f for f in traceback.extract_tb(error.__traceback__) if "src/prerank" in f.filename
        ]
        ours = inner[-1] if inner else last
        print(
            f"FAILED {name} {which} seed {seed} number {number}: {type(error).__name__}: "
            f"{str(error)[:200]!r} at {ours.filename.rpartition('src/')[2]}:{ours.lineno}",
            file=sys.stderr,
            flush=True,
        )
        return "failed"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    kept.unlink()
    return "sound"


if __name__ == "__main__":
    sys.exit(main())
