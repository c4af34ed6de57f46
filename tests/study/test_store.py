"""A folder holds one study: whole files, each with what made it; broken ones are named."""

import errno
import importlib
import math
import os
import platform
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from prerank import files as storage
from prerank.errors import InputError
from prerank.files import CheckpointFile
from prerank.preranks import parse
from prerank.study import NONE, PRESETS, Plan, Store, Unit
from prerank.study.work import _Clock
from study.tiny import contents, tiny

FIRST, SECOND = Unit("ar1", "none"), Unit("ar1", "marginal")


def frame(unit=FIRST, **changes):
    """Three rows of a result."""
    numbers = dict.fromkeys(("strength", "epochs", "best_epoch", "floor", "energy", "nll"), 1.0)
    texts = {"dataset": unit.dataset, "variant": unit.variant, "part": "test", "prerank": "hdr"}
    values = {"pce": [0.1, 0.2, 0.3], "null": [None, [0.5], None], "curve": None}
    return pd.DataFrame(
        {"seed": range(3), **texts, **numbers, "n": 60, "selected": True, **values, **changes}
    )


FRAME, OTHER = frame(), frame(SECOND)


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


def test_of_two_runners_with_different_plans_the_first_wins(tmp_path, monkeypatch):
    write = storage.write_atomically

    def late(*arguments, **options):  # the other one comes between the look and the writing
        monkeypatch.undo()
        assert Store(tmp_path, tiny(name="other")).plan.name == "other"
        return write(*arguments, **options)

    monkeypatch.setattr("prerank.study.store.write_atomically", late)
    with pytest.raises(InputError, match="another study"):
        Store(tmp_path, tiny())
    assert Store(tmp_path).plan.name == "other"


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
        CheckpointFile(store.checkpoint(unit)).discard()
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
    store.write(SECOND, OTHER.assign(pce=[0.7, math.nan, -0.0]), {"seconds": "2.25"})
    found = store.results()
    assert sorted(found.seconds) == [1.5] * 3 + [2.25] * 3
    own = found[found.seconds == 2.25].pce.tolist()
    assert own[0] == 0.7
    assert math.isnan(own[1])
    first = found[found.seconds == 1.5]
    assert first.pce.tolist() == FRAME.pce.tolist()
    assert [v if v is None else list(v) for v in first["null"]] == [None, [0.5], None]


def test_columns_without_any_list_are_missing_values(store):
    store.write(FIRST, FRAME.assign(null=None), {"seconds": "1"})
    store.write(SECOND, OTHER.assign(null=None), {"seconds": "2"})
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
    store.write(SECOND, OTHER, {"seconds": "1"})
    path = store.folder / "results" / "ar1--marginal.parquet"
    return store, path, path.read_bytes()


@settings(max_examples=40)
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


@settings(max_examples=50)
@given(SHARES, SIGNS)
def test_damaged_numbers_are_named_or_come_to_no_harm(broken, share, sign):
    found = damage(broken, share, sign, data=True)
    assert found is None or found.pce.tolist() == [*FRAME.pce, *FRAME.pce]
    damage(broken, share, sign, data=False)  # is named or read


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


WRONG = {
    "no column": FRAME.drop(columns="pce"),
    "text for numbers": FRAME.assign(pce="low"),
    "numbers for text": FRAME.assign(prerank=1.5),
    "no truth": FRAME.assign(selected=[True, None, False]),
    "no part": FRAME.assign(part=["test", None, "test"]),
    "numbers for lists": FRAME.assign(null=0.5),
    "lists of several lengths": FRAME.assign(null=[[0.5], [0.5, 0.5], None]),
    "rows of another dataset": FRAME.assign(dataset="../../x"),
    "rows of another variant": FRAME.assign(variant="hdr"),
    "an unknown part": FRAME.assign(part="rows"),
    "no label": FRAME.assign(prerank="$\\frac$"),
    "no rows to judge": FRAME.assign(n=0),
    "too many rows": FRAME.assign(n=2**62),
    "rows twice": pd.concat([FRAME, FRAME]),
    "no rows": FRAME[:0],
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_results_of_another_form_are_named_and_found(store, wrong):
    store.write(FIRST, wrong, {"seconds": "1"})
    with pytest.raises(InputError, match=r"ar1--none\.parquet: .*[Rr]emove it"):
        store.results()
    assert [path.name for path in store.remove_broken()] == ["ar1--none.parquet"]


def test_results_of_another_plan_are_named_and_found(store):
    store.write(FIRST, FRAME, {"seconds": "1"})
    path = store.folder / "plan.toml"
    path.write_text(store.plan.changed({"n_samples": "77"}).to_toml())
    edited = Store(store.folder)
    with pytest.raises(InputError, match=r"ar1--none\.parquet: it was made by another plan"):
        edited.results()
    # They are whole: nothing is removed, and the plan can be put back.
    with pytest.raises(InputError, match=r"another plan\. Put plan\.toml back as it was"):
        edited.remove_broken()
    # More datasets or variants are no other plan.
    path.write_text(store.plan.changed({"datasets": '["ar1", "outliers"]'}).to_toml())
    assert len(Store(store.folder).results()) == len(FRAME)


def test_a_link_to_nothing_is_no_result(store):
    path = store.folder / "results" / "ar1--none.parquet"
    path.parent.mkdir()
    path.symlink_to(store.folder / "gone")
    assert FIRST in store.left()
    assert not store.done(FIRST)


def test_pipes_are_refused(store):
    store.write(FIRST, FRAME, {"seconds": "1"})
    for path in (store.folder / "results" / "ar1--none.parquet", store.folder / "plan.toml"):
        path.unlink()
        os.mkfifo(path)
    with pytest.raises(InputError, match=r"ar1--none\.parquet is neither a file nor a folder"):
        store._read(FIRST)
    with pytest.raises(InputError, match=r"plan\.toml is neither a file nor a folder"):
        Store(store.folder)


@pytest.mark.parametrize("about", [{}, {"seconds": "long"}], ids=str)
def test_results_without_the_seconds_are_named(store, about):
    store.write(FIRST, FRAME, about)
    with pytest.raises(InputError, match=r"ar1--none\.parquet: .*seconds"):
        store.results()


@pytest.mark.parametrize(
    "entry",
    [
        [],
        {},
        "text",
        {"dataset": "ar1", "variant": "none", "reason": 5},
        {"dataset": "other", "variant": "none", "reason": "text"},
        {"dataset": "ar1", "variant": "none", "reason": "text", "more": ""},
    ],
    ids=str,
)
def test_reasons_of_another_form_are_named_and_found(store, entry):
    storage.write_json(store.folder / "results" / "ar1--none.skipped.json", entry)
    with pytest.raises(InputError, match=r"ar1--none\.skipped\.json"):
        store.skipped()
    assert [path.name for path in store.remove_broken()] == ["ar1--none.skipped.json"]


@pytest.mark.parametrize(
    ("tensors", "change"),
    [
        ({"other": torch.ones(2, 3)}, {}),
        ({"theta": torch.ones(2, 3, dtype=torch.int64)}, {}),
        ({"theta": torch.ones(2, 3)}, {"dataset": "outliers"}),
    ],
    ids=["another name", "whole numbers", "another dataset"],
)
def test_base_parameters_of_another_form_are_named_and_found(store, tensors, change):
    store.write_base("ar1", torch.ones(2, 3))
    path = store.folder / "base" / "ar1.safetensors"
    _, about = storage.read_tensors(path)
    storage.write_tensors(path, tensors, about | change)
    with pytest.raises(InputError, match=r"ar1\.safetensors has no parameters"):
        store.read_base("ar1", "cpu")
    assert [path.name for path in store.remove_broken()] == ["ar1.safetensors"]


def test_base_parameters_of_another_plan_are_named_and_stay(store):
    store.write_base("ar1", torch.ones(2, 3))
    path = store.folder / "base" / "ar1.safetensors"
    tensors, about = storage.read_tensors(path)
    storage.write_tensors(path, tensors, about | {"plan": "{}"})
    for read in (lambda: store.read_base("ar1", "cpu"), store.remove_broken):
        with pytest.raises(InputError, match=r"ar1\.safetensors: it was made by another plan"):
            read()
    assert path.exists()


def test_a_file_that_may_not_be_opened_stays(store, monkeypatch):
    store.write(FIRST, FRAME, {"seconds": "1"})
    whole = contents(store.folder)

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:  # who is root may open everything
        patch.setattr(Path, "open", refuse)
        with pytest.raises(InputError, match=r"cannot open .*none\.parquet: Permission denied"):
            store.remove_broken()
    assert contents(store.folder) == whole


def test_base_parameters_of_other_rows_are_refused(store):
    store.write_base("ar1", torch.ones(2, 3), content="a1")
    assert torch.equal(store.read_base("ar1", "cpu", content="a1"), torch.ones(2, 3))
    with pytest.raises(InputError, match=r"base/ar1\.safetensors comes from other rows"):
        store.read_base("ar1", "cpu", content="b2")
    assert store.remove_broken() == {}


def test_results_of_different_rows_are_not_mixed(store):
    store.write(FIRST, FRAME, {"seconds": "1", "content": "a1"})
    store.write(SECOND, OTHER, {"seconds": "1", "content": "a1"})
    assert set(store.results().content) == {"a1"}
    store.write(SECOND, OTHER, {"seconds": "1", "content": "b2"})
    with pytest.raises(InputError, match="different rows of ar1"):
        store.results()


def test_a_flipped_bit_in_base_parameters_is_found(store):
    store.write_base("ar1", torch.ones(2, 3))
    path = store.folder / "base" / "ar1.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    assert list(store.remove_broken()) == [path]


def test_links_out_of_the_folder_are_neither_read_nor_followed(store, tmp_path):
    store.write(FIRST, FRAME, {"seconds": "1"})
    store.skip(SECOND, "no reason")
    store.write_base("ar1", torch.ones(2, 3))
    files = ["results/ar1--none.parquet", "results/ar1--marginal.skipped.json"]
    files.append("base/ar1.safetensors")
    (tmp_path / "elsewhere").mkdir()
    for path in (store.folder / name for name in files):
        path.rename(tmp_path / "elsewhere" / path.name)
        path.symlink_to(tmp_path / "elsewhere" / path.name)
    for read in (store.results, store.skipped, lambda: store.read_base("ar1", "cpu")):
        with pytest.raises(InputError, match="link that leads out of"):
            read()
    before = contents(tmp_path / "elsewhere")
    assert list(store.remove_broken()) == [store.folder / name for name in files]
    assert contents(tmp_path / "elsewhere") == before


def test_files_of_no_unit_are_left_alone(store):
    (store.folder / "results").mkdir()
    (store.folder / "results" / "x.skipped.json").write_text("[]")
    assert store.skipped() == []
    assert store.remove_broken() == {}


@pytest.mark.parametrize("text", ["", "null", "[]", '"long"', "NaN", "Infinity", "-5", "1" * 400])
def test_a_clock_that_tells_no_time_begins_anew(tmp_path, text):
    (tmp_path / "unit.seconds").write_text(text)
    assert 0 <= _Clock(tmp_path / "unit.seconds", 30.0).seconds < 100
    (tmp_path / "unit.seconds").write_text("1000.5")
    assert _Clock(tmp_path / "unit.seconds", 30.0).seconds > 1000


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
