"""Lazy arrays on a real dask cluster, whose workers are killed."""

import os
import signal

import numpy as np
import pytest
import xarray as xr

import prerank

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow

CASES, CHUNK, MEMBERS, DIM = 70_000, 3_500, 20, 4  # more than are looked at together
DEADLY = 7 * CHUNK  # the first case of a chunk in the middle


def normal(seed, shape, sign, deaths):
    """Values from a seed; the chunk at `DEADLY` kills its process, so many times."""
    if seed == DEADLY and sign is not None:
        for number in range(deaths):
            try:
                (sign / str(number)).touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def lazy(first, *lead, sign=None, deaths=0):
    shape = (*lead, CHUNK, DIM)
    chunks = [
        da.from_delayed(dask.delayed(normal)(first + start, shape, sign, deaths), shape, np.float32)
        for start in range(0, CASES, CHUNK)
    ]
    return da.concatenate(chunks, len(lead))


def diagnosed(engine, **harm):
    samples = xr.DataArray(lazy(0, MEMBERS, **harm), dims=["number", "case", "station"])
    y = xr.DataArray(lazy(10**9), dims=["case", "station"])
    found = prerank.diagnose(
        samples, y, target="station", preranks="marginal+scale", generator=0, engine=engine
    )
    return found.records()


@pytest.fixture(scope="module")
def client():
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            processes=True, n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def expected():
    """In this process, block after block."""
    with dask.config.set(scheduler="synchronous"):
        return diagnosed(None)


def test_a_cluster_gives_the_same_bit_for_bit(client, expected):
    assert len(client.scheduler_info()["workers"]) == 2
    for engine in ("dask", client, client.get_executor()):
        assert diagnosed(engine) == expected


def test_a_lost_worker_is_survived(client, expected, tmp_path):
    assert diagnosed("dask", sign=tmp_path, deaths=1) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


def test_rows_that_kill_each_worker_end_in_an_error(client, tmp_path):
    with pytest.raises(distributed.KilledWorker, match=r"died while running it"):
        diagnosed("dask", sign=tmp_path, deaths=2)
