"""A folder holds one study: whole files, each with what made it; broken ones are named."""

import importlib
import math
import platform
import time

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from prerank.errors import InputError
from prerank.preranks import parse
from prerank.study import NONE, PRESETS, Plan, Store, Unit
from prerank.training import Checkpoint
from study.tiny import contents, tiny

FRAME = pd.DataFrame({"dataset": ["ar1"] * 3, "pce": [0.1, 0.2, 0.3], "null": [None, [0.5], None]})
FIRST, SECOND = Unit("ar1", "none"), Unit("ar1", "marginal")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "study", tiny(datasets=("ar1",)))


# One study in a folder


def test_a_new_folder_gets_the_plan_and_needs_it_no_more(tmp_path):
    folder = tmp_path / "deep" / "study"
    assert Store(folder, tiny()).plan == tiny()
    assert [path.name for path in folder.iterdir()] == ["plan.toml"]
    assert Store(folder).plan == tiny()
    assert Store(str(folder), tiny()).plan == tiny()


@pytest.mark.parametrize("changes", [{"name": "other"}, {"seeds": (1, 0)}, {"max_epochs": 4}])
def test_another_plan_is_refused_and_nothing_is_changed(store, changes):
    before = contents(store.folder)
    with pytest.raises(InputError, match="another study"):
        Store(store.folder, tiny(datasets=("ar1",), **changes))
    assert contents(store.folder) == before


def test_a_folder_without_a_plan_holds_no_study(tmp_path):
    with pytest.raises(InputError, match=r"no study.*plan\.toml"):
        Store(tmp_path)
    with pytest.raises(InputError, match="absent"):
        Store(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


# Units


def test_units_are_every_dataset_with_every_variant(tmp_path):
    plan = tiny()
    units = Store(tmp_path, plan).units
    assert units == [Unit(d, v) for d in plan.datasets for v in plan.variants]


@pytest.mark.parametrize("preset", PRESETS)
def test_files_of_units_are_their_own_and_lie_in_the_folder(tmp_path, preset):
    store = Store(tmp_path, Plan.preset(preset))
    stems = [unit.stem.lower() for unit in store.units]  # some file systems know no capitals
    assert len(set(stems)) == len(stems)
    for unit in store.units:
        assert store.checkpoint(unit).resolve().parent == tmp_path.resolve() / "checkpoints"
    some = store.units[:20]
    for unit in some:
        store.skip(unit, "no reason")
    found = set(contents(tmp_path)) - {"plan.toml"}
    assert found == {f"results/{unit.stem}.skipped.json" for unit in some}


TERMS = st.sampled_from(
    ["marginal", "hdr", "pca", "pca(2)", "pca(0.2)", "pca(0.8)", "dependency", "dependency(2)"]
)
VARIANTS = st.lists(TERMS, min_size=1, max_size=3).map("+".join)


@given(VARIANTS, VARIANTS)
def test_different_variants_have_different_files(one, other):
    same = Unit("air", one).stem == Unit("air", other).stem
    assert same == (parse(one) == parse(other))


def test_dropping_a_checkpoint_leaves_those_of_other_units(tmp_path):
    store = Store(tmp_path, Plan.preset("paper-exact"))
    units = [Unit("air", v) for v in store.plan.variants]
    (tmp_path / "checkpoints").mkdir()
    for unit in units:
        for part in ("all-0123456789ab", "penalised-ba9876543210"):
            store.checkpoint(unit).with_name(f"{unit.stem}.{part}").write_text("half")
    for number, unit in enumerate(units, start=1):
        Checkpoint(store.checkpoint(unit)).drop()
        assert len(list((tmp_path / "checkpoints").iterdir())) == 2 * (len(units) - number)


# Results


def test_a_unit_is_done_when_its_result_is_there(store):
    assert not any(map(store.done, store.units))
    store.write(FIRST, FRAME, {"seconds": "1.5"})
    assert [store.done(unit) for unit in store.units] == [True, False, False]
    store.skip(SECOND, "it cannot be had")
    assert [store.done(unit) for unit in store.units] == [True, True, False]


def test_results_come_back_as_they_were_with_the_seconds(store):
    store.write(FIRST, FRAME, {"seconds": "1.5"})
    store.write(SECOND, FRAME.assign(pce=[0.7, math.nan, -0.0]), {"seconds": "2.25"})
    found = store.results()
    assert sorted(found.seconds) == [1.5] * 3 + [2.25] * 3
    own = found[found.seconds == 2.25].pce.tolist()
    assert own[0] == 0.7
    assert math.isnan(own[1])
    first = found[found.seconds == 1.5]
    assert first.pce.tolist() == FRAME.pce.tolist()
    assert [v if v is None else list(v) for v in first["null"]] == [None, [0.5], None]


def test_columns_that_one_unit_lacks_are_missing_values(store):
    store.write(FIRST, FRAME.assign(null=None), {"seconds": "1"})  # no list in it at all
    store.write(SECOND, FRAME.drop(columns="null"), {"seconds": "2"})
    assert store.results()["null"].isna().all()


def test_what_cannot_be_had_is_listed_with_its_reason(store):
    assert store.skipped() == []
    store.skip(SECOND, "needs three targets | and more")
    assert store.skipped() == [
        {"dataset": "ar1", "variant": "marginal", "reason": "needs three targets | and more"}
    ]


def test_without_results_one_is_told_to_run_the_study(store):
    with pytest.raises(InputError, match="no results yet"):
        store.results()
    store.skip(FIRST, "no reason")
    with pytest.raises(InputError, match="no results yet"):
        store.results()


def test_a_frame_that_cannot_be_written_leaves_nothing(store):
    with pytest.raises(Exception, match=r"."):  # of pyarrow's choosing
        store.write(FIRST, pd.DataFrame({"pce": [{1, 2}, object()]}), {})
    assert not store.done(FIRST)
    assert list(contents(store.folder)) == ["plan.toml"]


# What made them


def told(file):
    """What a result says about itself, without what pandas says about its columns."""
    about = {k.decode(): v.decode() for k, v in parquet.read_schema(file).metadata.items()}
    return {key: text for key, text in about.items() if not text.startswith('{"index_columns"')}


def test_every_result_says_what_made_it(exact):
    plan = Store(exact).plan
    files = sorted((exact / "results").glob("*.parquet"))
    assert len(files) == 6
    for file in files:
        about = told(file)
        assert Plan.from_toml(about["plan"]) == plan
        for name in ("torch", "numpy", "scipy", "pyarrow"):
            assert importlib.import_module(name).__version__ in about.values()
        assert platform.python_version() in about.values()
        assert 0 < float(about["seconds"]) < 100
        (written,) = (text for key, text in about.items() if key.endswith("written"))
        time.strptime(written, "%Y-%m-%dT%H:%M:%SZ")


def test_every_result_says_which_pandas_made_it(exact):
    file = next((exact / "results").glob("*.parquet"))
    assert pd.__version__ in told(file).values()


# Broken files


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A store with two results, the path of one of them and its bytes."""
    store = Store(tmp_path_factory.mktemp("broken"), tiny(datasets=("ar1",)))
    store.write(FIRST, FRAME, {"seconds": "1"})
    store.write(SECOND, FRAME, {"seconds": "1"})
    path = store.folder / "results" / "ar1--marginal.parquet"
    return store, path, path.read_bytes()


@given(share=st.floats(0, 1, exclude_max=True))
def test_half_a_result_is_named(broken, share):
    store, path, whole = broken
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match=r"ar1--marginal\.parquet"):
        store.results()


def damage(broken, share, sign, *, data):
    """Change one byte: of the numbers alone, or of the whole file."""
    store, path, whole = broken
    # The last eight bytes are the length of the footer, and the mark of the format.
    end = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little") if data else len(whole)
    damaged = bytearray(whole)
    damaged[int(share * end)] ^= sign
    path.write_bytes(damaged)
    try:
        return store.results()
    except InputError as error:
        assert "ar1--marginal.parquet" in str(error)  # noqa: PT017 (either is right)
        return None


SHARES, SIGNS = st.floats(0, 1, exclude_max=True), st.integers(1, 255)


@given(SHARES, SIGNS)
def test_damaged_numbers_are_named_or_come_to_no_harm(broken, share, sign):
    found = damage(broken, share, sign, data=True)
    assert found is None or found.pce.tolist() == [*FRAME.pce, *FRAME.pce]


@given(SHARES, SIGNS)
def test_a_damaged_file_is_named_or_read(broken, share, sign):
    damage(broken, share, sign, data=False)


@pytest.mark.parametrize(
    "content", [b"", b"no parquet", b"PAR1PAR1", b"PAR1" + b"\0" * 50 + b"PAR1"]
)
def test_a_file_that_is_no_result_is_named(broken, content):
    store, path, _ = broken
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"(?s)ar1--marginal\.parquet.*run the study"):
        store.results()


def test_a_broken_reason_is_named(store):
    store.skip(FIRST, "no reason")
    path = store.folder / "results" / "ar1--none.skipped.json"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"ar1--none\.skipped\.json"):
        store.skipped()


def test_broken_base_parameters_are_named(store):
    store.write_base("ar1", torch.ones(2, 3))
    assert torch.equal(store.read_base("ar1", "cpu"), torch.ones(2, 3))
    path = store.folder / "base" / "ar1.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"ar1\.safetensors"):
        store.read_base("ar1", "cpu")
    assert store.read_base("outliers", "cpu") is None


def test_temporary_files_are_no_results(store):
    store.write(FIRST, FRAME, {"seconds": "1"})
    (store.folder / "results" / ".ar1--marginal.parquet.x1y2z3").write_bytes(b"half")
    assert len(store.results()) == len(FRAME)
    assert not store.done(SECOND)


# Claims


def test_a_claim_is_held_once(store):
    with store.claim(FIRST.stem) as first, store.claim(FIRST.stem) as again:
        assert (first, again) == (True, False)
        with Store(store.folder).claim(FIRST.stem) as elsewhere:
            assert not elsewhere
        with store.claim(SECOND.stem) as other:
            assert other
    with store.claim(FIRST.stem) as later:
        assert later


def test_the_unpenalised_variant_has_a_name_that_is_no_prerank():
    with pytest.raises(InputError):
        parse(NONE)
