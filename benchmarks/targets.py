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
    for row in results.get("published", []):
        name = str(row["prerank"])
        if name in _PUBLISHED:
            what = f"{name} step, published over ours"
            yield Target(what, float(row["ratio"]), _PUBLISHED[name], least=True)
    yield from _score_targets(results.get("scores", []))
    for row in results.get("heads", []):
        what = f"calibration head, forecast wrong in {row['forecast wrong in']}"
        yield Target(what, float(row["seconds"]), 5.0, " s")
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
