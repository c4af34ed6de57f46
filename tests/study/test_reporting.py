"""A report has every table and figure of a study, half done or whole."""

import shutil
import struct
import zlib

import pandas as pd
import pytest

from prerank.errors import InputError
from prerank.study import Store, Unit, run_study
from prerank.study.report_files import study_page, write_report
from prerank.study.tables import after, before, cross, evidence
from study.tiny import LABELS, contents, tiny


@pytest.fixture(autouse=True)
def _data(data, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(data))


def png_size(path):
    """Width and height of an image whose every chunk is whole."""
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    place, kinds, pixels = 8, [], b""
    while place < len(content):
        (length,) = struct.unpack_from(">I", content, place)
        kind = content[place + 4 : place + 8]
        body = content[place + 8 : place + 8 + length]
        (check,) = struct.unpack_from(">I", content, place + 8 + length)
        assert zlib.crc32(kind + body) == check
        kinds.append(kind)
        if kind == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
        if kind == b"IDAT":
            pixels += body
        place += 12 + length
    assert (kinds[0], kinds[-1], place) == (b"IHDR", b"IEND", len(content))
    assert len(set(zlib.decompress(pixels))) > 2  # something is drawn
    return width, height


def assert_sound(page, datasets, *more, curves=True):
    """The page and all that it shows are there, and nothing but that and more figures.

    Curves are of penalties by one pre-rank.
    """
    out = page.parent
    tables = ["before", "after", "evidence_before", "evidence_after", "combined", "seconds"]
    tables += [f"cross_{dataset}" for dataset in datasets]
    text = page.read_text(encoding="utf-8")
    if ">exact</dd>" in text:
        tables.append("frontiers")
    figures = ["bars", *more]
    kinds = ["boxes", "nulls", *(["reliability"] if curves else [])]
    figures += [f"{kind}_{dataset}" for dataset in datasets for kind in kinds]
    assert sorted(contents(out)) == sorted(
        [*(f"{name}.csv" for name in tables), *(f"{name}.png" for name in figures), "report.html"]
    )
    assert text.count("<img ") == len(figures)
    for name in figures:
        width, height = png_size(out / f"{name}.png")
        assert 100 < width < 5000
        assert 100 < height < 5000
    for dataset in datasets:
        assert f"{dataset}: every penalty by every pre-rank" in text
    return text


def read(page, name):
    return pd.read_csv(page.parent / f"{name}.csv")


def copied(folder, tmp_path, *without):
    """A copy of a study that lacks some results."""
    target = tmp_path / "study"
    shutil.copytree(folder, target)
    for stem in without:
        (target / "results" / f"{stem}.parquet").unlink()
    return Store(target)


# Whole studies


@pytest.fixture(scope="module")
def reported(exact, tmp_path_factory):
    return write_report(Store(exact), tmp_path_factory.mktemp("report"))


def test_a_report_has_every_table_and_figure(reported):
    text = assert_sound(reported, ["ar1", "outliers"])
    assert "Study tiny" in text
    assert "6 of 6 units are done" in text
    assert ">exact</dd>" in text
    assert "Skipped" not in text


def test_its_tables_are_those_of_the_study(exact, reported):
    results = Store(exact).results()
    expected = {
        "before": before(results),
        "after": after(results),
        "evidence_before": evidence(results, "none"),
        "evidence_after": evidence(results),
        "cross_ar1": cross(results, "ar1"),
    }
    for name, table in expected.items():
        # Six digits are written.
        found = read(reported, name)
        pd.testing.assert_frame_equal(found, table, check_dtype=False, rtol=1e-5, atol=1e-12)
    assert len(expected["before"]) == 2 * len(LABELS)
    assert sorted(expected["after"].prerank) == ["hdr", "hdr", "marginal", "marginal"]


def test_it_says_how_long_each_dataset_took(exact, reported):
    found = read(reported, "seconds").set_index("dataset")
    results = Store(exact).results().drop_duplicates(["dataset", "variant"])
    assert found.units.to_dict() == {"ar1": 3, "outliers": 3}
    for dataset, own in results.groupby("dataset"):
        assert found.seconds[dataset] == pytest.approx(own.seconds.sum(), rel=1e-4)


def test_a_published_study_shows_published_errors(published, tmp_path):
    store = copied(published, tmp_path)
    page = write_report(store)
    assert page == store.folder / "report" / "report.html"
    text = assert_sound(page, ["ar1"])
    assert ">published</dd>" in text
    results = store.results()
    own = results[(results.variant == "none") & (results.prerank == "hdr")]
    found = read(page, "before").set_index("prerank")
    assert found.loc["hdr", "mean"] == pytest.approx(own.published_pce.mean(), rel=1e-5)


def test_a_published_study_says_on_which_scale_each_number_is(published, exact, tmp_path):
    text = write_report(Store(published), tmp_path / "published").read_text(encoding="utf-8")
    headline = "calibration error (exact, of all test rows together)"
    relaxed = "as published (of relaxed samples, in batches of 256)"
    strength = "of the penalty, as published"
    words = [headline, "Two scales:", f"PCE {relaxed} before and after", strength]
    words += [f"PCE {relaxed} of each pre-rank", "Curves of the runs (exact, of all test rows"]
    for word in words:
        assert word in text
    assert "as selected" not in text
    text = write_report(Store(exact), tmp_path / "exact").read_text(encoding="utf-8")
    assert "of the penalty, as selected" in text
    assert not any(word in text for word in words)


def test_a_strength_that_the_plan_gives_is_not_said_to_be_published(data, tmp_path):
    plan = tiny(protocol="published", datasets=("triple",), strengths=(2.0,), max_epochs=1)
    run_study(plan, tmp_path)
    text = write_report(Store(tmp_path)).read_text(encoding="utf-8")
    assert "of the penalty, as the plan gives it" in text
    assert "of the penalty, as published" not in text


def test_every_column_has_a_legend(tmp_path):
    variants = ("none", "hdr", "marginal+hdr")
    run_study(tiny(datasets=("triple",), variants=variants, max_epochs=1), tmp_path)
    store = Store(tmp_path)
    page = write_report(store)
    names = ["before", "after", "evidence_before", "evidence_after"]
    names += ["combined", "frontiers", "seconds"]
    found = {name: read(page, name) for name in names}
    made = study_page(store, found, {})
    legends = {section.title: section for section in made.sections if section.legend}
    assert len(legends) == len(names)
    for section in legends.values():
        assert list(section.legend) == list(section.table.columns)
    together = legends["What it costs to penalise two things at once"]
    assert together.legend["energy_ratio"] == "energy score, together against alone"
    tried = legends["Every strength that was tried"].table
    assert tried.columns[:2].tolist() == ["dataset", "variant"]


def test_three_datasets_are_shown_in_one_figure(data, tmp_path):
    datasets = ("ar1", "outliers", "triple")
    run_study(tiny(datasets=datasets, variants=("none", "hdr"), max_epochs=1), tmp_path)
    text = assert_sound(write_report(Store(tmp_path)), datasets, "datasets")
    assert "Spread over the datasets" in text


def test_a_report_of_one_run_takes_the_place_of_an_older_one(tmp_path):
    run_study(tiny(datasets=("triple",), variants=("none", "hdr"), seeds=(7,)), tmp_path)
    (tmp_path / "report").mkdir()
    for name in ("before.csv", "bars.png", "report.html"):
        (tmp_path / "report" / name).write_text("old")
    page = write_report(Store(tmp_path))
    assert_sound(page, ["triple"])
    assert read(page, "before").se.isna().all()


def test_results_are_left_as_they_are(exact, reported):
    assert not (exact / "report").exists()


# Skipped, half done, unusual


@pytest.mark.parametrize("protocol", ["exact", "published"])
def test_two_targets_and_what_they_do_not_have(tmp_path, protocol):
    plan = tiny(
        datasets=("pair",),
        variants=("none", "dependency", "marginal"),
        protocol=protocol,
        strengths="auto" if protocol == "published" else (1.0,),
    )
    run_study(plan, tmp_path)
    text = assert_sound(write_report(Store(tmp_path)), ["pair"])
    assert "3 of 3 units are done" in text
    assert (">Skipped</h2>" in text) == (protocol == "exact")
    assert ("pair, dependency: dependency needs at least 3 targets" in text) == (
        protocol == "exact"
    )


OTHERS = [f"outliers--{variant}" for variant in ("none", "marginal", "hdr")]


def test_a_half_done_study_can_be_reported(exact, tmp_path):
    store = copied(exact, tmp_path, *OTHERS, "ar1--marginal")
    store.skip(Unit("ar1", "marginal"), "for reasons | of its own")
    text = assert_sound(write_report(store), ["ar1"])
    assert "3 of 6 units are done" in text
    assert "ar1, marginal: for reasons | of its own" in text


def test_a_study_with_unpenalised_runs_alone_can_be_reported(exact, tmp_path):
    page = write_report(copied(exact, tmp_path, *OTHERS, "ar1--marginal", "ar1--hdr"))
    assert_sound(page, ["ar1"], curves=False)
    assert len(read(page, "before")) == len(LABELS)


@pytest.mark.parametrize("without", [["ar1--none"], ["ar1--none", *OTHERS]], ids=len)
def test_a_study_whose_unpenalised_runs_are_not_done_can_be_reported(exact, tmp_path, without):
    page = write_report(copied(exact, tmp_path, *without))
    assert_sound(page, ["ar1"] if len(without) > 1 else ["ar1", "outliers"])
    assert {"hdr", "marginal"} <= set(read(page, "after").prerank)


def test_a_study_of_combined_penalties_can_be_reported(tmp_path):
    plan = tiny(datasets=("triple",), variants=("none", "marginal+hdr"), max_epochs=1)
    run_study(plan, tmp_path)
    page = write_report(Store(tmp_path))
    text = assert_sound(page, ["triple"], "pairs_triple", curves=False)
    assert "margins and another pre-rank are penalised together" in text
    assert set(read(page, "cross_triple").variant) == {"none", "marginal+hdr"}


def test_variants_stand_in_the_order_of_the_plan(reported):
    assert list(dict.fromkeys(read(reported, "cross_ar1").variant)) == ["none", "marginal", "hdr"]


def test_without_results_there_is_nothing_to_report(tmp_path):
    store = Store(tmp_path, tiny())
    with pytest.raises(InputError, match="no results yet"):
        write_report(store)
    assert list(contents(tmp_path)) == ["plan.toml"]


def test_a_broken_result_is_named_and_nothing_is_written(exact, tmp_path):
    store = copied(exact, tmp_path)
    (store.folder / "results" / "ar1--hdr.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"ar1--hdr\.parquet"):
        write_report(store)
    assert not (store.folder / "report").exists()
