"""Arrays of dask and zarr stores are read where they are needed."""

import json
import os
import warnings

import numpy as np
import pytest
import xarray as xr

import prerank
from adapters.judging import load
from cli.commands import call
from named_fields import EVENT, MEMBERS, TIMES, fields, shuffled
from prerank.adapters import named_forecast
from prerank.adapters.named_forecasts import NamedForecast
from prerank.diagnosis import Diagnoser, measurement
from prerank.errors import InputError, ShapeError
from prerank.files import read_forecasts, read_samples

dask = load("dask")
da = load("dask.array")
load("zarr")

SAMPLES, Y = fields(0.6, dtype=np.float32)
BLOCK = 20 * MEMBERS * 6


def stored(array, path):
    """A store of format 2, which has text too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (array if isinstance(array, xr.Dataset) else array.to_dataset()).to_zarr(
            path, zarr_format=2, consolidated=False
        )
    return path


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    return stored(shuffled(SAMPLES), folder / "fc.zarr"), stored(Y, folder / "obs.zarr")


def opened(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xr.open_zarr(path, consolidated=False, **options)


LAZY = {
    "dask": lambda stores: (SAMPLES.chunk(time=20), Y.chunk(time=30)),
    "datasets of dask": lambda stores: tuple(opened(path) for path in stores),
    "stores without dask": lambda stores: tuple(opened(path, chunks=None) for path in stores),
}


@pytest.mark.parametrize("kind", LAZY)
def test_lazy_arrays_give_the_same(kind, stores):
    samples, y = LAZY[kind](stores)
    score = prerank.energy_score(samples, y, target=EVENT)
    xr.testing.assert_allclose(score, prerank.energy_score(SAMPLES, Y, target=EVENT))
    found = prerank.diagnose(samples, y, target=EVENT, preranks="location")
    expected = prerank.diagnose(SAMPLES, Y, target=EVENT, preranks="location")
    assert found.records() == expected.records()


def test_a_block_reads_its_rows_alone():
    read = []

    def values(block, block_info=None):
        read.append(block_info[0]["array-location"][1])
        return block

    watched = SAMPLES.copy(data=da.from_array(SAMPLES.to_numpy(), (-1, 20, -1, -1)))
    watched.data = watched.data.map_blocks(values, dtype=np.float32)
    with dask.config.set(scheduler="synchronous"):
        blocks = named_forecast(watched, Y, target=EVENT).blocks(BLOCK)
        read.clear()  # dask may have looked at the type
        for start in range(0, TIMES, 20):
            dist, _ = next(blocks)
            assert dist.batch_shape == (20,)
            assert set(read) == {(start, start + 20)}
            read.clear()


def test_stores_are_files_of_forecasts(stores):
    options = {"target": EVENT, "sample": "number", "by": "time.season"}
    found = read_forecasts(*stores, **options)
    direct = named_forecast(SAMPLES, Y, target=EVENT)
    assert found.targets == tuple(f"t2m/{name}" for name in direct.y.columns)
    np.testing.assert_array_equal(found.samples, direct.dist.samples)
    np.testing.assert_array_equal(found.observations, direct.y)
    assert found.groups == tuple(Y.time.dt.season.to_numpy())


def test_a_store_is_diagnosed_on_the_command_line(stores):
    files = ["--samples", stores[0], "--observations", stores[1]]
    done = call("diagnose", *files, "--member=number", "--target=station,lead", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["verdict"]["mood"] == "bad"


def test_samples_of_a_store_are_written_to_netcdf(stores, tmp_path):
    new = read_samples(stores[0], "t2m", target=EVENT)
    path = new.write(tmp_path / "new.nc", 2 * new.values)
    with xr.open_dataset(path, engine="h5netcdf", decode_timedelta=False) as written:
        xr.testing.assert_equal(written["t2m"], 2 * shuffled(SAMPLES))


def pickled(path):
    about = path / "t2m" / ".zarray"
    found = json.loads(about.read_text())
    about.write_text(json.dumps({**found, "dtype": "|O", "filters": [{"id": "pickle"}]}))


def linked(path):
    chunk = next((path / "t2m").glob("0.*"))
    os.replace(chunk, path.parent / "elsewhere")
    chunk.symlink_to(path.parent / "elsewhere")


def claiming(path):
    about = path / "t2m" / ".zarray"
    about.write_text(json.dumps({**json.loads(about.read_text()), "shape": [2, 1000, 10**6, 2]}))


HARM = {
    "code": (pickled, "holds pickled objects, which can run code"),
    "a link": (linked, "is a link: copy its values into the store"),
    "no values": (claiming, "claims to hold"),
    "no metadata": (lambda path: (path / ".zgroup").write_text("{"), "not a zarr store"),
}


@pytest.mark.parametrize("case", HARM)
def test_stores_that_do_harm_are_refused(case, tmp_path):
    harm, message = HARM[case]
    path = stored(Y.expand_dims(number=2).drop_vars(list(Y.coords)), tmp_path / "s.zarr")
    harm(path)
    with pytest.raises(InputError, match=f"^{path}: .*{message}"):
        read_forecasts(path, tmp_path / "y.csv")


def test_many_rows_are_diagnosed_in_blocks(monkeypatch, small_blocks):
    """PITs are uniform within ranks at random, so errors of 20 members differ by less than 1/20."""
    whole = prerank.diagnose(SAMPLES, Y, target=EVENT, preranks="marginal+scale")
    sizes, update = [], Diagnoser.update

    def counting(diagnoser, dist, y):
        sizes.append(len(y))
        update(diagnoser, dist, y)

    monkeypatch.setattr(Diagnoser, "update", counting)
    monkeypatch.setattr(measurement, "MANY_ROWS", 50)
    lazy = prerank.diagnose(
        SAMPLES.chunk(time=20), Y.chunk(time=30), target=EVENT, preranks="marginal+scale"
    )
    assert sizes == 6 * [20]
    assert lazy.n == whole.n
    assert lazy.units == whole.units
    for one, other in zip(lazy.findings, whole.findings, strict=True):
        assert (one.prerank, one.component) == (other.prerank, other.component)
        assert abs(one.pce - other.pce) < 1 / 20


def lazy_diagnosis(**options):
    return prerank.diagnose(
        SAMPLES.chunk(time=20), Y.chunk(time=30), target=EVENT, generator=0, **options
    )


def same_ranks(found, expected):
    """PITs are uniform within ranks at random: ranks are the same, and errors within 1/20."""
    assert list(found.pits) == list(expected.pits)
    for label, z in expected.pits.items():
        ranks = [((MEMBERS + 1) * one).floor() for one in (found.pits[label], z)]
        assert (ranks[0] != ranks[1]).float().mean() < 0.01, label
    for one, other in zip(found.findings, expected.findings, strict=True):
        assert (one.prerank, one.component) == (other.prerank, other.component)
        assert abs(one.pce - other.pce) < 1 / 20


@pytest.fixture
def small_blocks(monkeypatch):
    slices = NamedForecast.slices
    monkeypatch.setattr(NamedForecast, "slices", lambda self, values=BLOCK: slices(self, values))


@pytest.mark.parametrize(
    "scheduler", ["threads", pytest.param("processes", marks=pytest.mark.slow)]
)
def test_dask_counts_rows_where_it_computes_them(scheduler, small_blocks, monkeypatch):
    expected = prerank.diagnose(SAMPLES, Y, target=EVENT, preranks="marginal+scale")
    with dask.config.set(scheduler=scheduler, num_workers=2):
        found = lazy_diagnosis(engine="dask", preranks="marginal+scale")
        again = lazy_diagnosis(engine="dask", preranks="marginal+scale")
    same_ranks(found, expected)
    assert found.records() == again.records()  # whatever the order in which parts are done
    monkeypatch.setattr(measurement, "MANY_ROWS", 50)
    with dask.config.set(scheduler="threads"):
        here = lazy_diagnosis(preranks="marginal+scale")
    assert found.records() == here.records()


def test_rows_of_the_same_time_are_added_up_in_blocks(small_blocks):
    options = {"preranks": "marginal+scale", "time": "time"}
    found, expected = lazy_diagnosis(engine="dask", **options), lazy_diagnosis(**options)
    same_ranks(found, expected)
    assert found.dependence.count == expected.dependence.count == TIMES
    for one, other in zip(found.findings, expected.findings, strict=True):
        assert one.floor == pytest.approx(other.floor, rel=0.1)  # the noise within ranks


def test_what_needs_all_rows_has_no_engine():
    for words, options in {
        "by compares groups": {"by": "time.season"},
        "spread in all rows": {"scale": "samples"},
        "where values may be missing": {"time": "time", "missing": "available"},
        "looks at several rows": {"preranks": "pca(0.7)"},
    }.items():
        with pytest.raises(InputError, match=f"^engine: .*{words}"):
            lazy_diagnosis(engine="dask", **options)
    with pytest.raises(TypeError, match="engine must be 'dask', an engine of"):
        lazy_diagnosis(engine="mpi", preranks="scale")


def test_blocks_end_where_chunks_end():
    samples = SAMPLES.chunk(time=(20, 20, 20, 7, 2, TIMES - 69))
    found = named_forecast(samples, Y, target=EVENT)
    ends = [part.stop for part in found.slices(2 * BLOCK)]
    assert ends[:3] == [40, 69, TIMES]  # the last chunk is less than four times as large
    assert found.slices(1)[:2] == [slice(0, 1), slice(1, 2)]


def test_chunks_may_be_empty():
    blocks = [da.from_array(SAMPLES.to_numpy()[:, part]) for part in (slice(0), slice(70))]
    blocks += [blocks[0], da.from_array(SAMPLES.to_numpy()[:, 70:])]
    samples = SAMPLES.copy(data=da.concatenate(blocks, axis=1, allow_unknown_chunksizes=False))
    samples = samples.copy(data=samples.data.rechunk({1: (0, 70, 0, 50)}))
    assert 0 in samples.chunksizes["time"]
    options = {"target": EVENT, "preranks": "marginal", "engine": "dask"}
    assert prerank.diagnose(samples, Y, **options).n == TIMES


@pytest.mark.parametrize("dim", SAMPLES.dims)
def test_arrays_without_values_are_refused(dim):
    y = Y if dim == "number" else Y.isel({dim: []})
    with pytest.raises(ShapeError, match=f"dist is empty: its dimension '{dim}'"):
        prerank.diagnose(SAMPLES.isel({dim: []}), y, target=EVENT)
