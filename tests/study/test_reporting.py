"""A report has every table and figure of a study, half done or whole."""

import shutil
import struct
import zlib

import pandas as pd
import pytest

from prerank.errors import InputError
from prerank.report.wording import table_columns
from prerank.study import Store, Unit, run_study
from prerank.study.page_tables import page_table, resolution_words
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


def assert_drawable(figures):
    """Every figure can be drawn, as far as its pixels."""
    assert figures
    for figure in figures:
        figure.draw_without_rendering()


def assert_sound(page, datasets, *more, curves=True, drawn=True, several=None):
    """The page and all that it shows are there, and nothing but that and more figures.

    Curves are of penalties by one pre-rank. Several datasets with bars have each a figure of them.
    """
    several = len(datasets) > 1 if several is None else several
    out = page.parent
    tables = ["before", "after", "evidence_before", "evidence_after", "combined", "seconds"]
    tables += [f"cross_{dataset}" for dataset in datasets]
    text = page.read_text(encoding="utf-8")
    if ">exact</dd>" in text:
        tables.append("frontiers")
    figures = ["bars", *more]
    kinds = ["boxes", "nulls", *(["reliability"] if curves else [])]
    figures += [f"{kind}_{dataset}" for dataset in datasets for kind in kinds]
    figures += [f"bars_{dataset}" for dataset in datasets if several]
    assert sorted(contents(out)) == sorted(
        [*(f"{name}.csv" for name in tables), *(f"{name}.png" for name in figures), "report.html"]
    )
    assert text.count("<img ") == len(figures) - several  # bars by dataset, or of all
    for name in figures if drawn else ():
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


def test_a_report_has_every_table_and_figure(exact, reported):
    text = assert_sound(reported, ["ar1", "outliers"])
    assert "Study tiny" in text
    assert "6 of 6 units are done" in text
    assert ">exact</dd>" in text
    assert "Skipped" not in text
    assert "of the penalty, as selected" in text
    assert "Two scales" not in text
    assert "as published (of relaxed samples" not in text
    assert not (exact / "report").exists()  # results are left as they are


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
    variants = read(reported, "cross_ar1").variant
    assert list(dict.fromkeys(variants)) == ["none", "marginal", "hdr"]  # as in the plan


def test_it_says_how_long_each_dataset_took(exact, reported):
    found = read(reported, "seconds").set_index("dataset")
    results = Store(exact).results().drop_duplicates(["dataset", "variant"])
    assert found.units.to_dict() == {"ar1": 3, "outliers": 3}
    for dataset, own in results.groupby("dataset"):
        assert found.seconds[dataset] == pytest.approx(own.seconds.sum(), rel=1e-4)


def test_a_published_study_shows_published_errors_and_says_on_which_scale(tmp_path, undrawn):
    variants = ("none", "dependency", "marginal")
    plan = tiny(protocol="published", strengths="auto", datasets=("pair",), variants=variants)
    run_study(plan, tmp_path / "study")
    store = Store(tmp_path / "study")
    page = write_report(store)
    assert page == store.folder / "report" / "report.html"
    text = assert_sound(page, ["pair"], drawn=False)
    assert ">published</dd>" in text
    assert "3 of 3 units are done" in text
    assert "Skipped" not in text  # the published dependency exists for two targets
    results = store.results()
    found = read(page, "before").set_index("prerank")
    for label in ("hdr", "dependency"):
        own = results[(results.variant == "none") & (results.prerank == label)]
        assert found.loc[label, "mean"] == pytest.approx(own.published_pce.mean(), rel=1e-5)
    relaxed = "as published (of relaxed samples, in batches of 256)"
    words = ["calibration error (exact, of all test rows together)", "Two scales:"]
    words += [f"PCE {relaxed} before and after", "of the penalty, as published"]
    words += [f"PCE {relaxed} of each pre-rank", "Curves of the runs (exact, of all test rows"]
    for word in words:
        assert word in text
    assert "as selected" not in text
    # A strength that the plan gives is not said to be published.
    given = Store(tmp_path / "given", plan.changed({"strengths": "[2.0]"}))
    made = study_page(given, {name: read(page, name) for name in ("before", "after")}, {})
    assert made.sections[0].legend["strength"] == "of the penalty, as the plan gives it"


def test_three_datasets_combined_penalties_and_what_is_skipped(data, tmp_path, undrawn):
    datasets = ("triple", "pair", "quad")
    variants = ("none", "dependency", "hdr", "marginal+hdr")
    small = {"strengths": (1.0,), "max_epochs": 1, "n_null": 5, "n_samples": 10}
    run_study(tiny(datasets=datasets, variants=variants, **small), tmp_path)
    store = Store(tmp_path)
    page = write_report(store)
    more = ("datasets", *(f"pairs_{dataset}" for dataset in datasets))
    text = assert_sound(page, datasets, *more, drawn=False)
    assert "12 of 12 units are done" in text
    assert ">Skipped</h2>" in text
    assert "pair, dependency: dependency needs at least 3 targets" in text
    assert "Spread over the datasets" in text
    assert "margins and another pre-rank are penalised together" in text
    assert set(read(page, "cross_triple").variant) == set(variants)
    # These two are in no other report: each can be drawn. Bars come first.
    assert len(undrawn) == 1 + 3 + 1 + 3 * 4
    undrawn[4].draw_without_rendering()
    undrawn[7].draw_without_rendering()
    words = "the plan has none on marginal, location, scale, pca and copula alone."
    assert f"No bar after a penalty: {words}" in text
    assert "No bar after a penalty on dependency of pair, which does not apply." in text
    # Every column of every table has a legend.
    names = ["before", "after", "evidence_before", "evidence_after"]
    names += ["combined", "frontiers", "seconds"]
    made = study_page(store, {name: read(page, name) for name in names}, {})
    legends = {section.title: section for section in made.sections if section.legend}
    assert len(legends) == len(names)
    for section in legends.values():
        assert list(section.legend) == list(section.table.columns)
    together = legends["What it costs to penalise two things at once"]
    assert together.legend["energy_ratio"] == "energy score, together against alone"
    tried = legends["Every strength that was tried"].table
    assert tried.columns[:2].tolist() == ["dataset", "variant"]


def test_a_report_of_one_run_takes_the_place_of_an_older_one(tmp_path, undrawn):
    plan = tiny(datasets=("triple",), variants=("none", "hdr"), seeds=(7,), max_epochs=1, n_null=5)
    run_study(plan, tmp_path)
    (tmp_path / "report").mkdir()
    for name in ("before.csv", "bars.png", "report.html"):
        (tmp_path / "report" / name).write_text("old")
    page = write_report(Store(tmp_path))
    assert "With one run in each cell there are no standard errors" in assert_sound(
        page, ["triple"], drawn=False
    )
    assert_drawable(undrawn)
    assert read(page, "before").se.isna().all()


# Half done


OTHERS = [f"outliers--{variant}" for variant in ("none", "marginal", "hdr")]


def test_a_half_done_study_can_be_reported(exact, tmp_path, undrawn):
    store = copied(exact, tmp_path, *OTHERS, "ar1--marginal")
    store.skip(Unit("ar1", "marginal"), "for reasons | of its own")
    text = assert_sound(write_report(store), ["ar1"], drawn=False)
    assert "3 of 6 units are done" in text
    assert "Run the study again to finish it" in text
    assert "ar1, marginal: for reasons | of its own" in text


def test_a_study_with_unpenalised_runs_alone_can_be_reported(exact, tmp_path, undrawn):
    page = write_report(copied(exact, tmp_path, *OTHERS, "ar1--marginal", "ar1--hdr"))
    assert_sound(page, ["ar1"], curves=False, drawn=False)
    assert_drawable(undrawn)
    assert len(read(page, "before")) == len(LABELS)


def test_a_study_whose_unpenalised_runs_are_not_done_can_be_reported(exact, tmp_path, undrawn):
    page = write_report(copied(exact, tmp_path, "ar1--none", *OTHERS))
    assert_sound(page, ["ar1"], drawn=False)
    assert_drawable(undrawn)
    assert {"hdr", "marginal"} <= set(read(page, "after").prerank)


def test_of_two_datasets_one_may_lack_its_unpenalised_runs(exact, tmp_path, undrawn):
    page = write_report(copied(exact, tmp_path, "ar1--none"))
    text = assert_sound(page, ["ar1", "outliers"], drawn=False, several=False)
    assert "No bars of ar1: its unpenalised runs are not done yet." in text
    assert len(read(page, "after")) == 4
    assert set(read(page, "before").dataset) == {"outliers"}


def test_a_penalty_that_is_not_done_is_named_beside_the_bars(exact, tmp_path, undrawn):
    store = copied(exact, tmp_path, "ar1--hdr")
    text = write_report(store).read_text(encoding="utf-8")
    assert "No bar after a penalty on hdr of ar1, which is not done yet." in text
    assert "hdr of outliers" not in text


def test_tables_of_the_page_have_errors_beside_means_and_mark_what_replicates_resolve():
    table = pd.DataFrame(
        {
            "prerank": ["marginal", "hdr", "scale"],
            "mean": [0.0123, 0.2, 0.3],
            "se": [0.0012, 0.01, float("nan")],
            "runs": 3,
            "p_value": [1 / 251, 0.0041, 1 / 50_001],
            "p_holm": [3 / 251, 0.0123, 3 / 50_001],
            "paper": float("nan"),
            "paper_se": float("nan"),
        }
    )
    shown = table_columns(page_table(table, 250))
    assert [column.name for column in shown] == ["prerank", "mean", "p_value", "p_holm"]
    texts = {column.name: [cell.text for cell in column.cells] for column in shown}
    assert texts["mean"] == ["0.0123\u2009±\u20090.0012", "0.200\u2009±\u20090.010", "0.3"]
    assert texts["p_value"] == ["≤0.004", "0.004", "<0.001"]
    assert texts["p_holm"] == ["≤0.012", "0.012", "<0.001"]
    assert [float(cell.value) for cell in shown[1].cells] == list(table["mean"])  # sorts as numbers
    assert "250 replicates of several components resolve 0.004" in resolution_words(250)


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
