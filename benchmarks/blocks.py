r"""Diagnoses of lazy arrays: time beside numpy's sort of the same members, and memory.

    python benchmarks/blocks.py --out docs/results/tables/blocks.csv
    python benchmarks/blocks.py --growth --out docs/results/tables/growth.csv \
        --figure docs/results/figures/growth.png

Each line comes from a process of its own. Members are float32 and made chunk by chunk with dask,
from a seed for each chunk, in the thread that diagnoses them. Times are CPU nanoseconds for each
value of the members: `prerank` that of the diagnosis less what making the chunks takes, `sort` that
of `numpy.sort` of a chunk along its member axis, the first, and `lines` of a chunk whose members
are neighbours in memory. Sorts and chunks are timed before and after. The memory is the
most that was resident (`ru_maxrss`), libraries included.
"""

import argparse
import csv
import multiprocessing
import resource
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

FEW = "marginal+location+scale"
LINEAR = "marginal+location+pca"
POINTWISE = "scale+dependency"
CLASSIC = "multivariate_rank+average_rank+band_depth+energy_score"
EVERY = f"{LINEAR}+{POINTWISE}+copula+{CLASSIC}"
QUICK = f"marginal+location+{POINTWISE}+copula"
CHUNK_VALUES = 2**23
GROWN = (50_000, 50, 16)
SIZES = ("cases", "members", "D")
NUMBERS = dict.fromkeys(SIZES, "") | {"prerank ns": "diagnose", "sort ns": "numpy.sort"}
"""Columns that are drawn, with their words."""

Line = dict[str, str | int | float]


def lines(largest: int, preranks: str) -> list[tuple[int, int, int, str, bool]]:
    """Cases, members, D, pre-ranks, and whether rows of one time depend on each other."""
    found = [(50_000, 50, 64, name, False) for name in EVERY.split("+")]
    found += [(cases, 50, 64, QUICK, False) for cases in (10_000, 100_000)]
    found += [(20_000, members, 64, QUICK, False) for members in (10, 100)]
    found += [(20_000, 50, dim, QUICK, False) for dim in (16, 128)]
    found += [(100_000, 50, 64, "marginal", timed) for timed in (True, False)]
    return [*found, (largest, 50, 64, preranks, False)] if largest else found


def growth() -> list[tuple[int, int, int, str, bool]]:
    """Lines in which one of cases, members and D grows by factors of two or so."""
    found = [(cases, *GROWN[1:]) for cases in (12_500, 25_000, 50_000, 100_000, 200_000)]
    found += [(GROWN[0], members, GROWN[2]) for members in (10, 25, 100, 200)]
    found += [(*GROWN[:2], dim) for dim in (4, 8, 32, 64)]
    return [(*sizes, QUICK, False) for sizes in found]


def draw(table: Path, figure: Path) -> None:
    """CPU seconds over cases, members and D, beside those of the sort."""
    import matplotlib.pyplot as plt

    with table.open() as file:
        lines = [
            {k: float(v) for k, v in row.items() if k in NUMBERS} for row in csv.DictReader(file)
        ]
    panels, axes = plt.subplots(1, 3, figsize=(10, 3), sharey=True, layout="constrained")
    for k, (name, ax) in enumerate(zip(SIZES, axes, strict=True)):
        others = [(other, GROWN[i]) for i, other in enumerate(SIZES) if i != k]
        own = [line for line in lines if all(line[other] == size for other, size in others)]
        own.sort(key=lambda line: line[name])
        at = [line[name] for line in own]
        values = [line["cases"] * line["members"] * line["D"] * 1e-9 for line in own]
        for column, words in NUMBERS.items():
            if words:
                times = [line[column] * count for line, count in zip(own, values, strict=True)]
                ax.loglog(at, times, "o-", label=words)
        fixed = ", ".join(f"{other} = {size:,}" for other, size in others)
        ax.set_xlabel(name)
        ax.set_title(fixed, fontsize="medium")
        ax.set_xticks(at, [f"{size:,.0f}" for size in at], rotation=30, minor=False)
        ax.minorticks_off()
    axes[0].set_ylabel("CPU seconds")
    axes[0].legend()
    panels.savefig(figure, dpi=130)
    plt.close(panels)


def measured(cases: int, members: int, dim: int, preranks: str, timed: bool) -> Line:
    """One line, from a process of its own."""
    import dask
    import dask.array as da
    import torch
    import xarray as xr

    import prerank

    torch.set_num_threads(1)
    rows = max(16, CHUNK_VALUES // (members * dim) // 16 * 16)

    def made(number: int, shape: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng(number).standard_normal(shape, dtype=np.float32)

    def lazy(first: int, *lead: int) -> da.Array:
        parts = [
            da.from_delayed(
                dask.delayed(made)(first + start, (*lead, min(rows, cases - start), dim)),
                (*lead, min(rows, cases - start), dim),
                np.float32,
            )
            for start in range(0, cases, rows)
        ]
        return da.concatenate(parts, len(lead))

    def cpu_ns(work: Callable[[], object]) -> float:
        start = time.process_time_ns()
        work()
        return time.process_time_ns() - start

    def references() -> tuple[float, ...]:
        chunk, odd = (made(0, (members, rows + extra, dim)) for extra in (0, 1))
        beside = np.ascontiguousarray(np.moveaxis(chunk, 0, -1))
        works = (
            lambda: made(1, (members + 1, rows, dim)),
            lambda: np.sort(chunk, 0),
            lambda: np.sort(odd, 0),
            lambda: np.sort(beside, -1),
        )
        return tuple(cpu_ns(work) / chunk.size for work in works)

    dates = np.arange(cases) // 100  # 100 cases of each time
    samples = xr.DataArray(
        lazy(0, members), dims=["number", "case", "station"], coords={"day": ("case", dates)}
    )
    y = xr.DataArray(lazy(10**9), dims=["case", "station"], coords={"day": ("case", dates)})
    before, start = references(), time.monotonic()
    with dask.config.set(scheduler="synchronous"):
        spent = cpu_ns(
            lambda: prerank.diagnose(
                samples,
                y,
                target="station",
                preranks=preranks,
                generator=0,
                time="day" if timed else None,
                engine=_Here(),
            )
        )
    seconds = time.monotonic() - start
    make, by_axis, odd, by_line = map(median, zip(before, references(), strict=True))
    ours = spent / (cases * members * dim) - make
    return {
        "cases": cases,
        "members": members,
        "D": dim,
        "preranks": preranks,
        "time": timed,
        "GB": 4 * cases * members * dim / 1e9,
        "prerank ns": ours,
        "sort ns": by_axis,
        "odd sort ns": odd,
        "lines ns": by_line,
        "over sort": ours / by_axis,
        "over odd sort": ours / odd,
        "make ns": make,
        "wall s": seconds,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


class _Here:
    """This thread; so rows are counted in blocks however few there are."""

    map = staticmethod(map)


def main() -> None:
    """Measure all lines, and write each when it is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="the table")
    parser.add_argument("--largest", type=int, default=1_000_000, help="cases of the last line")
    parser.add_argument("--only-largest", action="store_true")
    parser.add_argument("--preranks", default=FEW, help="of the last line")
    parser.add_argument("--growth", action="store_true", help="the lines of growth alone")
    parser.add_argument("--figure", type=Path, help="picture of the growth")
    options = parser.parse_args()
    chosen = growth() if options.growth else lines(options.largest, options.preranks)
    fresh = multiprocessing.get_context("spawn")
    with options.out.open("w", newline="") as file:
        writer = None
        for one in chosen[-1:] if options.only_largest else chosen:
            with fresh.Pool(1) as pool:  # whose memory is that of one line
                line = pool.apply(measured, one)
            writer = writer or csv.DictWriter(file, list(line), lineterminator="\n")
            if not file.tell():
                writer.writeheader()
            writer.writerow(
                {k: round(v, 3) if isinstance(v, float) else v for k, v in line.items()}
            )
            file.flush()
    if options.figure is not None:
        draw(options.out, options.figure)


if __name__ == "__main__":
    main()
