"""Where files of others come in: sound examples, and what is done with a damaged one."""

import hashlib
import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import prerank
from prerank.datasets import import_table, load_table
from prerank.estimators import load_model
from prerank.forecasts import read_forecasts
from prerank.study import Plan, Store

Corpus = dict[str, bytes]


@dataclass(frozen=True)
class Entry:
    """A way in.

    Args:
        corpus: makes sound files, by name.
        use: reads the file `name` in a folder that holds all of the corpus, one of them damaged.
        seal: makes the bytes pass the checks that would end every case early, such as a hash.
    """

    corpus: Callable[[], Corpus]
    use: Callable[[Path, str], object]
    seal: Callable[[Path, str], None] = lambda folder, name: None


def frame(rows: int = 24) -> pd.DataFrame:
    """A small table with numbers, text, a date, gaps and two targets."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2))
    return pd.DataFrame(
        {
            "x0": x[:, 0].round(3),
            "x1": np.where(rng.random(rows) < 0.1, np.nan, x[:, 1].round(3)),
            "kind": rng.choice(["mud", "sand", 'sil"t, fine'], rows),
            "day": pd.date_range("2020-01-01", periods=rows).astype(str),
            "y0": rng.normal(size=rows).round(3),
            "y1": rng.integers(0, 9, rows),
        }
    )


def parquet(table: pd.DataFrame, **options: object) -> bytes:
    """Bytes of a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(table), sink, **options)
    return sink.getvalue()


def array_bytes(shape: tuple[int, ...], body: bytes) -> bytes:
    """Bytes of an .npy file whose header may say what is not so."""
    file = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + body


def tables() -> Corpus:
    """A table in all formats that `import_table` reads."""
    data = frame()
    head = "@relation r\n" + "".join(
        f"@attribute {name} {kind}\n"
        for name, kind in (
            ("x0", "numeric"),
            ("kind", "{mud,sand}"),
            ("y0", "real"),
            ("y1", "real"),
        )
    )
    lines = [f"{i / 7:.3f},{'mud' if i % 2 else 'sand'},{i},{i % 3}" for i in range(24)]
    return {
        "a.csv": data.to_csv(index=False).encode(),
        "b.tsv": data.to_csv(index=False, sep="\t").encode(),
        "c.csv": data.to_csv(index=False, sep=";").encode("utf-8-sig"),
        "d.arff": (head + "@data\n" + "\n".join(lines)).encode(),
        "e.parquet": parquet(data),
        "f.parquet": parquet(data.astype({"kind": "category"}), compression="zstd"),
    }


def use_table(folder: Path, name: str) -> None:
    """Import it, and read the result."""
    done = import_table(folder / name, ("y0", "y1"), folder / "data", "taken")
    load_table(done.name, folder / "data")


def plans() -> Corpus:
    """The presets, and a plan with every field."""
    full = Plan.preset("quick").changed({"strengths": "[0.5, 3.5]", "training.max_epochs": "7"})
    texts = [Plan.preset(name).to_toml() for name in ("quick", "paper-exact", "paper-as-published")]
    return {f"{i}.toml": text.encode() for i, text in enumerate([*texts, full.to_toml()])}


def use_plan(folder: Path, name: str) -> None:
    """Read it, write it, and begin a study."""
    plan = Plan.read(folder / name)
    assert Plan.from_toml(plan.to_toml()) == plan
    store = Store(folder / "study", plan)
    for unit in store.units[:2]:
        store.skip(unit, "not run")


def models() -> Corpus:
    """A fitted regressor."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
    model = prerank.MixtureRegressor(2, hidden=(4,), max_epochs=2, strength=1.0, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        model.fit(x, y).save(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def seal_model(folder: Path, name: str) -> None:
    """Put hashes into `model.json` that match, as whoever means harm would."""
    path = folder / "model.json"
    try:
        settings = json.loads(path.read_bytes())
        settings.pop("sha256", None)
        weights = folder / Path(str(settings["weights"])).name
        settings["weights_sha256"] = hashlib.sha256(weights.read_bytes()).hexdigest()
        text = json.dumps(settings, sort_keys=True, ensure_ascii=True)
        settings["sha256"] = hashlib.sha256(text.encode()).hexdigest()
        path.write_text(json.dumps(settings))
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
        return  # too damaged to be sealed


def use_model(folder: Path, name: str) -> None:
    """Load it, and predict."""
    model = load_model(folder)
    model.predict(np.zeros((3, model.n_features_in_)))


def forecasts() -> Corpus:
    """Samples and observations in all formats that `read_forecasts` takes."""
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(4, 8, 2)).round(3)
    observed = pd.DataFrame(rng.normal(size=(8, 2)).round(3), columns=["y0", "y1"])
    observed.insert(0, "row", range(8))
    long = pd.DataFrame(samples.reshape(-1, 2), columns=["y0", "y1"])
    long.insert(0, "sample", np.repeat(range(4), 8))
    long.insert(0, "row", np.tile(range(8), 4))
    wide = pd.DataFrame({f"y{d}_{s}": samples[s, :, d] for d in range(2) for s in range(4)})
    wide.insert(0, "row", range(8))
    arrays, one = io.BytesIO(), io.BytesIO()
    np.savez_compressed(arrays, samples=samples, targets=np.array(["y0", "y1"]))
    np.save(one, samples)
    return {
        "observed.csv": observed.to_csv(index=False).encode(),
        "long.csv": long.to_csv(index=False).encode(),
        "long.parquet": parquet(long),
        "wide.csv": wide.to_csv(index=False).encode(),
        "arrays.npz": arrays.getvalue(),
        "array.npy": one.getvalue(),
        "grid.nc": _netcdf(samples),
    }


def _netcdf(samples: np.ndarray) -> bytes:
    import xarray as xr

    dims = ("number", "row")
    data = xr.Dataset({f"y{d}": (dims, samples[..., d]) for d in range(2)}, {"row": range(8)})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "grid.nc")
        data.to_netcdf(path, engine="h5netcdf")
        return path.read_bytes()


def use_forecasts(folder: Path, name: str) -> None:
    """Read it beside sound observations, or damaged observations beside sound samples."""
    samples = "long.csv" if name == "observed.csv" else name
    targets = ("y0", "y1") if name.endswith(".npy") else None
    found = read_forecasts(folder / samples, folder / "observed.csv", targets=targets)
    assert np.isfinite(found.samples).all()


def studies() -> Corpus:
    """Result of a unit, as a study leaves it."""
    plan = Plan.preset("quick")
    rows = pd.DataFrame(
        {
            "variant": "none",
            "strength": 0.0,
            "seed": range(3),
            "dataset": plan.datasets[0],
            "part": "test",
            "prerank": "marginal",
            "selected": True,
            "pce": 0.01,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder, plan)
        store.write(store.units[0], rows, {"seconds": "1.0", "device": "cpu"})
        result = next(Path(folder, "results").iterdir())
        return {"plan.toml": plan.to_toml().encode(), result.name: result.read_bytes()}


def use_study(folder: Path, name: str) -> None:
    """Read the results of a study."""
    (folder / "results").mkdir()
    for path in folder.glob("*.parquet"):
        path.replace(folder / "results" / path.name)
    Store(folder).results()


ENTRIES = {
    "import": Entry(tables, use_table),
    "plan": Entry(plans, use_plan),
    "model": Entry(models, use_model, seal_model),
    "forecasts": Entry(forecasts, use_forecasts),
    "study": Entry(studies, use_study),
}
