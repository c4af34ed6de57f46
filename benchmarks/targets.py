"""The speed that was aimed at, and how measured numbers compare with it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from timing import Record

Results = Mapping[str, list[Record]]
"""Records of each part by name."""

_STEP = {
    "marginal": 1.5,
    "location": 1.5,
    "pca": 1.5,
    "scale": 2.5,
    "dependency": 2.5,
    "hdr": 4.0,
    "copula": 6.0,
}
_OWN_LOOP = {"scale": 2.8, "hdr": 4.2, "copula": 5.2}
_ENSEMBLES = {"copula": 15.0, "pit": 1.5, "crps": 1.0}
_STARTUP = {
    "--version": 0.05,
    "--help": 0.15,
    "explain": 0.25,
    "explain hdr": 0.25,
    "CalibrationPenalty": 1.05,
}
_FIT = {
    "penalty, strength auto": (8.0, 8.0),
    "head": (4.0, 1.5),
}  # below 10,000 rows, and from there
_DIAGNOSIS = {"marginal": 3.0, "pca": 6.0}
_PUBLISHED = dict.fromkeys(_STEP, 5.0) | {"hdr": 30.0, "copula": 30.0}
_STACK = {"none": 0.5} | dict.fromkeys(_STEP, 0.8) | {"hdr": 1.5, "copula": 2.5}
_PASS = dict.fromkeys(("none", "marginal", "location", "pca"), 2.0)


@dataclass(frozen=True)
class Target:
    """A bound on a number.

    Attributes:
        what: is measured.
        value: that was measured.
        bound: that was aimed at.
        unit: of both.
        least: whether the bound is a lower one.
    """

    what: str
    value: float
    bound: float
    unit: str = ""
    least: bool = False

    @property
    def excess(self) -> float:
        """How far the value is on the wrong side, relative to the bound."""
        excess = self.value / self.bound - 1
        return -excess if self.least else excess

    def record(self) -> Record:
        """A row of the table."""
        word = "at least" if self.least else "at most"
        missed = f"missed by {self.excess:.0%}"
        return {
            "what": self.what,
            "target": f"{word} {self.bound:g}{self.unit}",
            "measured": f"{self.value:.3g}{self.unit}",
            "verdict": "reached" if self.excess <= 0 else missed,
        }


def targets(results: Results, threads: int) -> Iterator[Target]:
    """The bounds on what was measured, with torch's default number of threads."""
    for row in results.get("steps", []):
        name, dim = str(row["prerank"]), int(row["targets"])
        if name in _STEP and dim in (4, 16) and row["threads"] == threads:
            bound = _STEP[name] * (2 if dim == 16 else 1)
            yield Target(f"{name} step over unpenalised, D = {dim}", float(row["ratio"]), bound)
    yield from _compiled_targets(results.get("compiled", []))
    yield from _loop_targets(results.get("own_loop", []))
    yield from _process_targets(results)
    for row in results.get("published", []):
        name = str(row["prerank"])
        if name in _PUBLISHED:
            what = f"{name} step, published over ours"
            yield Target(what, float(row["ratio"]), _PUBLISHED[name], least=True)
    yield from _score_targets(results.get("scores", []))
    yield from _evaluation_targets(results)
    for row in results.get("heads", []):
        what = f"calibration head, forecast wrong in {row['forecast wrong in']}"
        yield Target(what, float(row["seconds"]), 5.0, " s")
    yield from _fit_targets(results.get("fits", []))
    for row in results.get("graphs", []):
        name = str(row["prerank"])
        if row["runs"] == 25:
            what = f"{name}, 25 stacked runs of households shapes, step"
            yield Target(what, float(row["graph ms"]), _STACK[name], " ms")
    for row in results.get("passes", []):
        name = str(row["prerank"])
        what = f"{name}, pass over calcofi, 25 runs"
        yield Target(what, float(row["seconds"]), _PASS.get(name, 6.0), " s")
    for row in results.get("households", []):
        if row["prerank"] == "all":
            yield Target("all of households, 175 runs", float(row["seconds"]), 40.0, " s")


def _evaluation_targets(results: Results) -> Iterator[Target]:
    for row in results.get("ensembles", []):
        bound = next((b for n, b in _ENSEMBLES.items() if str(row["what"]).startswith(n)), None)
        if bound is not None and "ratio" in row:
            what = f"{row['what']}, D = {row['targets']}, {row['dtype']}"
            yield Target(what, float(row["ratio"]), bound)
    for row in results.get("diagnoses", []):
        name, size = str(row["prerank"]), f"n = {int(row['rows']):,}"
        if "ratio" in row and name in _DIAGNOSIS:
            what = f"diagnosis by {name}, {size}, CPU time over numpy's sort"
            yield Target(what, float(row["ratio"]), _DIAGNOSIS[name])
        what = f"diagnosis by {name}, {size}, memory above the input"
        yield Target(what, float(row["peak MB"]), 300, " MB")


def _compiled_targets(records: list[Record]) -> Iterator[Target]:
    for row in records:
        name, dim, runs = str(row["prerank"]), int(row["targets"]), int(row["runs"])
        if row["where"] == "trainer":
            what = f"{name} step, compiled over plain, D = {dim}, runs {runs}, one thread"
            yield Target(what, float(row["ratio"]), 0.6)
        elif name in _OWN_LOOP:
            what = f"{name} step over unpenalised in a loop of one's own, D = {dim}"
            yield Target(what, float(row["ratio"]), _OWN_LOOP[name])


def _loop_targets(records: list[Record]) -> Iterator[Target]:
    trainer = {
        (row["threads"], row["prerank"]): row for row in records if row["where"] == "trainer"
    }
    for row in records:
        if row["where"] == "own loop" and row["prerank"] in _OWN_LOOP:
            bound = float(trainer[row["threads"], row["prerank"]]["ratio"])
            what = f"{row['prerank']} step in a loop of one's own, threads {row['threads']}"
            yield Target(f"{what}, over unpenalised", float(row["ratio"]), bound)


def _process_targets(results: Results) -> Iterator[Target]:
    for row in results.get("startup", []):
        if row["what"] in _STARTUP:
            what = f"{row['what']}, CPU time over importing torch"
            yield Target(what, float(row["ratio"]), _STARTUP[str(row["what"])])
    for row in results.get("threads", []):
        if row["waiting"] == "passive" and int(row["threads"]) > 1:
            others = f"beside {row['busy processes']} busy processes"
            what = f"{row['prerank']} step, threads {row['threads']}, {others}"
            yield Target(f"{what}, over the better", float(row["over the better"]), 1.2)


def _fit_targets(records: list[Record]) -> Iterator[Target]:
    for row in records:
        name, rows = str(row["fit"]), int(row["rows"])
        if "peak MB" in row:
            yield Target(f"fit of {name}, {rows} rows, peak", float(row["peak MB"]), 1000, " MB")
        elif row["to one member"]:
            what = f"fit of {name}, {rows} rows, over one member"
            yield Target(what, float(row["to one member"]), 3.0)
        elif name in _FIT:
            bound = _FIT[name][rows >= 10_000]
            yield Target(f"fit of {name}, {rows} rows, over none", float(row["ratio"]), bound)


def _score_targets(records: list[Record]) -> Iterator[Target]:
    timed = {str(row["what"]): row for row in records if "ratio" in row}
    others = {name: row for name, row in timed.items() if name.startswith("scoringrules")}
    whole = [row for name, row in others.items() if not name.endswith("at a time")]
    if whole:
        fastest = min(float(row["ratio"]) for row in whole)
        what = "energy score, fastest backend of scoringrules, in one call, over ours"
        yield Target(what, fastest, 6.0, least=True)
    if others:
        largest = max(float(row["difference"]) for row in others.values())
        yield Target("energy score, largest difference", largest, 1e-5)
    if "prerank" in timed:
        yield Target("energy score, peak memory", float(timed["prerank"]["peak MB"]), 300, " MB")
    calls = [float(row["seconds"]) for row in records if row["what"] == "diagnose"]
    if calls:
        yield Target("diagnose, first call", calls[0], 10.0, " s")
