"""Train every form of the penalty at every strength, and judge it on validation and test rows.

    PRERANK_DATA=data python experiments/frontier/run.py --datasets households --out results

A unit is one dataset, form and pre-rank: all strengths and the five published seeds in one stack.
Each is written to a file of its own when it is done. Several processes may share a folder: a unit
belongs to the first that claims it, and what a killed process had claimed is free again once its
`.claim` files are removed.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

from forms import FORMS
from prerank.datasets import PUBLISHED_SEEDS, load_table, published_split
from prerank.errors import NotApplicableError
from prerank.files import read_tensors, write_json, write_tensors
from prerank.models import MixtureNetwork
from prerank.preranks import PAPER, parse
from prerank.training import Objective, Run, Settings, TrainingData, evaluate, train

SETTINGS = Settings(lr=1e-4, batch_size=256, max_epochs=5000, patience=15, min_delta=1e-4)
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
NONE = "none"


class Problem:
    """A dataset with its five published splits, on the device."""

    def __init__(self, name: str, device: str) -> None:
        table = load_table(name)
        splits = [published_split(len(table.x), seed) for seed in PUBLISHED_SEEDS]
        pairs = [(s.train, s.validation) for s in splits]
        self.name = name
        self.data = TrainingData.build(table.x, table.y, pairs, device=device)
        self.test = torch.stack([s.test for s in splits]).to(device)
        self.network = MixtureNetwork(table.x.shape[1], table.y.shape[1])
        self.probe = self.network(self.network.initial(0)[None].to(self.data.x), self.data.x[:1])

    def unpenalised(self, folder: Path) -> torch.Tensor:
        """Best parameters of the five seeds without a penalty, `(5, P)`, trained once."""
        path = folder / f"{self.name}.safetensors"
        if path.exists():
            return read_tensors(path)[0]["theta"].to(self.data.x.device)
        runs = [Run(seed, m) for m, seed in enumerate(PUBLISHED_SEEDS)]
        theta = train(self.network, self.data, runs, settings=SETTINGS).theta
        write_tensors(path, {"theta": theta}, {"dataset": self.name})
        return theta

    def applies(self, label: str) -> bool:
        """Whether the pre-rank can be computed for these targets."""
        try:
            parse(label)[0].check(self.probe)
        except NotApplicableError:
            return False
        return True

    def unit(self, form: str, label: str, strengths: tuple[float, ...], folder: Path) -> dict:
        """Train and judge one stack."""
        chosen = FORMS[form]
        objective = Objective() if label == NONE else chosen.objective(label)
        settings = replace(SETTINGS, **chosen.settings)
        grid = (0.0,) if label == NONE else strengths
        runs = [
            Run(seed, m, strength) for strength in grid for m, seed in enumerate(PUBLISHED_SEEDS)
        ]
        start = time.perf_counter()
        if label == NONE or settings.fine_tune:
            base = self.unpenalised(folder).repeat(len(grid), 1)
            options = {"start": base}
            settings = settings.tuning
        else:
            options = {}
        trainer = chosen.trainer(
            self.network, self.data, runs, objective=objective, settings=settings, **options
        )
        while not trainer.done:
            trainer.step()
        result = trainer.result()
        seconds = time.perf_counter() - start
        judged = tuple(p for p in PAPER if self.applies(p.label)) if label == NONE else parse(label)
        split = torch.tensor([run.split for run in runs], device=self.test.device)
        found = {}
        for where, rows in (("validation", self.data.validation), ("test", self.test)):
            place = split.unsqueeze(1), rows[split]
            found[where] = evaluate(
                self.network, result.theta, self.data.x[place], self.data.y[place], judged
            )
        records = [
            {
                "strength": run.strength,
                "seed": run.seed,
                "epochs": int(result.epochs[m]),
                **{
                    where: {
                        "energy": float(f.energy[m]),
                        "nll": float(f.nll[m]),
                        "excess": {p: float(f.excess(p)[m]) for p in f.pce},
                        "noise": float(f.noise[m]),
                    }
                    for where, f in found.items()
                },
            }
            for m, run in enumerate(runs)
        ]
        return {
            "dataset": self.name,
            "form": form,
            "prerank": label,
            "seconds": seconds,
            "records": records,
        }


def claim(path: Path) -> bool:
    """Take a unit that nobody has finished or begun."""
    if path.exists():
        return False
    try:
        path.with_suffix(".claim").open("x").close()
    except FileExistsError:
        return False
    return True


def main() -> None:
    """Run the experiment from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=["households", "air", "births2"])
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--preranks", nargs="+", default=["marginal", "scale", "hdr", "copula"])
    parser.add_argument("--strengths", nargs="+", type=float, default=list(STRENGTHS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="of beginning, in s")
    parser.add_argument("--out", type=Path, default=Path("frontier-results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    for name in options.datasets:
        problem = Problem(name, options.device)
        units = [("default", NONE)]
        units += [
            (form, label)
            for form in options.forms
            for label in options.preranks
            if problem.applies(label) and label in (FORMS[form].preranks or options.preranks)
        ]
        for form, label in units:
            stem = f"{name}-{label}-{form}".replace(" ", "_").replace(",", "")
            path = options.out / f"{stem}.json"
            if time.perf_counter() - begun > options.time_limit or not claim(path):
                continue
            found = problem.unit(form, label, tuple(options.strengths), options.out)
            write_json(path, found)
            path.with_suffix(".claim").unlink()
            print(f"{stem}: {found['seconds']:.1f} s", flush=True)


if __name__ == "__main__":
    main()
