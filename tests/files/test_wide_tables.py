"""Files of thousands of columns: the work grows as their number.

Work that grows as its square would take these tests from minutes to hours.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from prerank.errors import InputError
from prerank.files import read_forecasts, read_samples
from prerank.files.user_tables import read_inputs, read_training_table

N, S = 4, 3
Write = Callable[[pd.DataFrame, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(table: pd.DataFrame, name: str) -> Path:
        table.to_parquet(tmp_path / name)
        return tmp_path / name

    return written


def numbers(size: int, rows: int = N, end: str = "") -> pd.DataFrame:
    values = np.random.default_rng(0).normal(size=(rows, size))
    return pd.DataFrame(values, columns=[f"station{j:05d}{end}" for j in range(size)])


def test_columns_that_both_files_share_are_keys(write: Write) -> None:
    """One forecast has no observation, so that each key is tried without."""
    keys = numbers(2000)
    observed = write(keys.assign(rain=0.5)[1:], "observed.parquet")
    long = keys.loc[np.repeat(range(N), S)].reset_index(drop=True)
    long = long.assign(sample=list(range(S)) * N, rain=np.arange(N * S) / 9)
    read = read_forecasts(write(long, "samples.parquet"), observed)
    assert read.targets == ("rain",)
    assert read.samples[..., 0].T.tolist() == (np.arange(S, N * S).reshape(-1, S) / 9).tolist()


def test_names_that_are_all_unknown_give_a_short_message(write: Write) -> None:
    file, wanted = write(numbers(3000), "inputs.parquet"), [*numbers(3000, end="x")]
    with pytest.raises(InputError, match=r"2988 more.*did you mean station00000") as caught:
        read_inputs(file, wanted)
    assert len(str(caught.value)) < 1000


def test_columns_of_text(write: Write) -> None:
    texts = pd.DataFrame({f"bed{j}": ["mud", "sand"] * 2 for j in range(2500)})
    table = read_training_table(write(texts.assign(flow=range(N)), "table.parquet"), ["flow"])
    assert table.inputs.shape == (N, 2500)
    assert list(table.inputs["bed2499"]) == ["mud", "sand"] * 2


def test_samples_of_many_targets_are_read_and_written(write: Write) -> None:
    names = [f"station{j:05d}" for j in range(2000)]
    values = np.random.default_rng(0).normal(size=(N, 2000 * S))
    wide = pd.DataFrame(values, columns=[f"{name}_{k}" for name in names for k in range(S)])
    read = read_samples(write(wide, "wide.parquet"), names[::-1])
    assert np.array_equal(read.values[..., ::-1], values.reshape(N, 2000, S).transpose(2, 0, 1))
    again = pd.read_parquet(read.write(Path(read.path.parent, "new.parquet"), 2 * read.values))
    assert np.array_equal(again, 2 * values)


def test_many_variables_of_a_grid(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    values = np.random.default_rng(0).normal(size=(1 + S, N, 2000))
    for file, dims, part in (("o.nc", ("t",), values[0]), ("s.nc", ("sample", "t"), values[1:])):
        variables = {f"station{j}": (dims, part[..., j]) for j in range(2000)}
        grid = xr.Dataset(variables, coords={"t": range(N)})
        grid.to_netcdf(tmp_path / file, engine="scipy")
    read = read_forecasts(tmp_path / "s.nc", tmp_path / "o.nc")
    assert np.array_equal(read.samples, values[1:])
    assert np.array_equal(read.observations, values[0])
