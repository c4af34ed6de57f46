"""Studies and models through kills at known moments, full disks, lost nodes, clocks that jump.

    PYTHONPATH=tests python -m chaos.run --minutes 60 --seed 0 --out build/chaos

Each round disturbs one study, and compares its tables and parameters with those of an undisturbed
one, bit for bit. The moments and delays of a round follow from the seed and its number; which
worker is struck, and at which step, depends on the machine. `strikes.csv` has one line for each
strike, `chaos.csv` their counts. The exit code is 1 if anything differs, and the folder of that
study is kept.
"""

import argparse
import sys
import time
import traceback
from pathlib import Path

from chaos.clusters import close_cluster
from chaos.harms import Unavailable
from chaos.models import MODELS
from chaos.rounds import Round, counts_table, strikes_table
from chaos.scenarios import SCENARIOS
from chaos.studies import Ground


def main() -> int:
    """Rounds of all scenarios until time is up; 1 where something was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="0 for each scenario once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--strikes", type=int, help="most of a round: 12, or 2 if there is one")
    parser.add_argument("--length", type=float, help="of trainings: 3, or .3 if there is one")
    parser.add_argument("--only", default="", help="scenarios whose engine or name has this text")
    parser.add_argument("--out", type=Path, default=Path("build/chaos"))
    options = parser.parse_args()
    once = options.minutes == 0
    strikes = options.strikes or (2 if once else 12)
    ground = Ground(options.out.absolute(), options.length or (0.3 if once else 3.0))
    chosen = [s for s in (*SCENARIOS, *MODELS) if options.only in f"{s.engine}: {s.name}"]
    end = time.monotonic() + 60 * options.minutes
    rounds: list[Round] = []
    skipped: dict[str, str] = {}
    number = 0
    try:
        while chosen and (number == 0 or time.monotonic() < end):
            for place, scenario in enumerate(chosen):
                if number and time.monotonic() >= end:
                    break
                label = f"{scenario.engine}: {scenario.name}"
                if label in skipped:
                    continue
                seed = f"{label} {options.seed} {number}"
                try:
                    rounds.append(scenario.play(ground, seed, number + place, strikes))
                except Unavailable as reason:
                    skipped[label] = str(reason)
                    print(f"{label}: skipped, {reason}", flush=True)
                    continue
                except Exception:  # of the harness: an hour's counts are not lost for it
                    rounds.append(Round(scenario.name, scenario.engine, ""))
                    rounds[-1].faults.append(traceback.format_exc())
                print(rounds[-1], *rounds[-1].faults, sep="\n    ", flush=True)
                strikes_table(rounds).to_csv(ground.folder / "strikes.csv", index=False)
                counts_table(rounds).to_csv(ground.folder / "chaos.csv", index=False)
            number += 1
    finally:
        close_cluster()
    print(counts_table(rounds).to_string(index=False))
    return int(any(found.faults for found in rounds))


if __name__ == "__main__":
    sys.exit(main())
