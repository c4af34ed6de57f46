"""Where files of others come in: sound examples, and what is done with a damaged one."""

import hashlib
import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import SafetensorError, safe_open

import prerank
from prerank.datasets import AR1Regression, Table, import_table, load_table, save_table
from prerank.errors import InputError
from prerank.estimators import load_model
from prerank.estimators.base import JointRegressor
from prerank.files import CheckpointFile, read_forecasts
from prerank.files.dataset_tables import table_shape
from prerank.files.values import digest
from prerank.models import MixtureNetwork
from prerank.study import NONE, Plan, Store, Unit
from prerank.study import tables as study_tables
from prerank.training import Checkpoint, Run, Settings, Trainer, TrainingData

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


def stored() -> Corpus:
    """Tables as `import_table` leaves them."""
    rng = np.random.default_rng(0)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, inputs in (("a", ("depth", "bed=mud")), ("b", ("x",))):
            x, y = rng.normal(size=(24, len(inputs))), rng.normal(size=(24, 2))
            table = Table(name, x.astype(np.float32), y.astype(np.float32), inputs, ("u", "v"))
            path = save_table(table, folder)
            found[path.name] = path.read_bytes()
    return found


def use_stored(folder: Path, name: str) -> None:
    """Look at it, and read it."""
    rows, n_inputs, n_targets = table_shape(folder / name)
    table = load_table(Path(name).stem, folder)
    assert table.x.shape == (rows, n_inputs)
    assert table.y.shape == (rows, n_targets)
    assert np.isfinite(table.x).all()
    assert np.isfinite(table.y).all()


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
    """A fitted mixture."""
    return _saved(prerank.MixtureRegressor(2, members=2, hidden=(4,), max_epochs=2, strength=0.0))


def flows() -> Corpus:
    """A fitted flow."""
    return _saved(
        prerank.FlowRegressor(bins=4, method="network", hidden=(4,), max_epochs=2, strength=1.0)
    )


def _saved(model: JointRegressor) -> Corpus:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
    model.set_params(random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        model.fit(x, y).save(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def seal_model(folder: Path, name: str) -> None:
    """Put hashes into `model.json` that match, as whoever means harm would."""
    path = folder / "model.json"
    if name.endswith(".safetensors"):
        seal_tensors(folder / name)
    try:
        settings = json.loads(path.read_bytes())
        settings.pop("sha256", None)
        for part in ("weights", "head"):
            if settings[part] is not None:
                content = (folder / Path(str(settings[part])).name).read_bytes()
                settings[f"{part}_sha256"] = hashlib.sha256(content).hexdigest()
        text = json.dumps(settings, sort_keys=True, ensure_ascii=True)
        settings["sha256"] = hashlib.sha256(text.encode()).hexdigest()
        path.write_text(json.dumps(settings))
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
        return  # too damaged to be sealed


def seal_tensors(path: Path) -> None:
    """Put a digest into a file of tensors that matches what is in it."""
    try:
        with safe_open(path, framework="pt") as file:
            about = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
        old = about.pop("sha256").encode()
        new = digest(tensors, about).encode()
    except (SafetensorError, OSError, KeyError):
        return  # too damaged to be sealed
    path.write_bytes(path.read_bytes().replace(old, new, 1))


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


@lru_cache(maxsize=1)
def _rows() -> TrainingData:
    x, y = AR1Regression(dim=2).sample(90, generator=0)
    rows = torch.arange(90)
    return TrainingData.build(x, y, [(rows[:60], rows[60:])])


def trainer() -> Trainer:
    """Of two small runs."""
    network = MixtureNetwork(2, 2, n_components=1, hidden=(2,))
    return Trainer(network, _rows(), [Run(0), Run(1)], settings=Settings(batch_size=30))


def studies() -> Corpus:
    """What a study leaves: results, a reason, parameters and a checkpoint."""
    plan = Plan.preset("quick")
    dataset, variant = plan.datasets[0], plan.variants[1]
    names = ("strength", "epochs", "best_epoch", "pce", "floor", "energy", "nll")
    numbers = dict.fromkeys(names, 0.1)
    rows = pd.DataFrame(
        {
            "seed": range(4),
            "dataset": dataset,
            "variant": NONE,
            "part": ["validation", "test"] * 2,
            "prerank": "hdr",
            "selected": True,
            **numbers,
            "n": 60,
            "curve": [None, [0.5, 0.6]] * 2,
            "null": [None, [0.1, 0.2]] * 2,
        }
    )
    begun = trainer()
    while not begun.progress.epoch:
        begun.step()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder, plan)
        store.write(Unit(dataset, NONE), rows, {"seconds": "1.0", "device": "cpu"})
        store.write(Unit(dataset, variant), rows.assign(variant=variant), {"seconds": "1.0"})
        store.skip(Unit(dataset, plan.variants[2]), "it needs more targets")
        store.write_base(dataset, torch.ones(2, 3))
        begun.save(CheckpointFile(Path(folder, "checkpoint")))
        return {path.name: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def seal_study(folder: Path, name: str) -> None:
    """Files of tensors have a digest."""
    if name == "checkpoint" or name.endswith(".safetensors"):
        seal_tensors(folder / name)


def use_study(folder: Path, name: str) -> None:
    """Go on from the checkpoint, or find what is broken: all the rest can be read."""
    if name == "checkpoint":
        begun = trainer()
        Checkpoint(CheckpointFile(folder / name)).resume(begun)
        if not (folder / name).exists():
            raise InputError("refused, and begun anew")
        begun.step()
        return
    for part, pattern in (("results", "*--*"), ("base", "*.safetensors")):
        (folder / part).mkdir()
        for path in folder.glob(pattern):
            path.replace(folder / part / path.name)
    store = Store(folder)
    broken = store.remove_broken()
    store.skipped()
    store.read_base(store.plan.datasets[0], "cpu")
    results = store.results()
    if broken:
        raise InputError("found")
    if name.endswith(".parquet"):  # the slowest part
        study_tables.compared({"study": results})
        study_tables.evidence(results, NONE)
        study_tables.evidence(results)


ENTRIES = {
    "import": Entry(tables, use_table),
    "stored": Entry(stored, use_stored),
    "plan": Entry(plans, use_plan),
    "model": Entry(models, use_model, seal_model),
    **({"flow": Entry(flows, use_model, seal_model)} if find_spec("zuko") else {}),
    "forecasts": Entry(forecasts, use_forecasts),
    "study": Entry(studies, use_study, seal_study),
}
