"""`prerank diagnose`: forecasts from files are judged, and faults that were put in are named."""

import numpy as np
import pandas as pd
import pytest

import prerank
from cli.commands import Reader, call, contents, record, refused, said, small_files
from prerank.defaults import SCALE
from prerank.files import read_forecasts, write_samples

N, SAMPLES = 300, 40
TARGETS = ("rain", "wind", "sun")
FEW = ("--preranks", "marginal+scale+copula")  # pictures take time
MIXING = np.linalg.cholesky(0.3 * np.eye(3) + 0.7)

# From right samples to wrong ones, and what the verdict has to say.
FAULTS = {
    "too narrow": (lambda s: 0.4 * s, "predictions too narrow in every target"),
    "biased": (lambda s: s + np.array([0.7, 0, 0]), "observed values lower than predicted in rain"),
    "independent": (lambda s: s @ np.linalg.inv(MIXING).T, "dependence"),
}


@pytest.fixture(scope="module")
def forecasts(tmp_path_factory):
    """A folder with what was observed, right forecasts and wrong ones."""
    folder = tmp_path_factory.mktemp("forecasts")
    random = np.random.default_rng(4)
    observed = random.normal(size=(N, 3)) @ MIXING.T
    right = random.normal(size=(SAMPLES, N, 3)) @ MIXING.T
    table = pd.DataFrame(observed, columns=list(TARGETS))
    table["season"] = np.where(np.arange(N) % 2, "summer", "[winter]")
    table.to_csv(folder / "observed.csv", index=False)
    write_samples(folder / "right.parquet", right, TARGETS)
    for fault, (spoil, _) in FAULTS.items():
        write_samples(folder / f"{fault}.parquet", spoil(right), TARGETS)
    season = np.where(np.arange(N) % 2, 0.6, -0.6)[:, None]
    write_samples(folder / "seasonal.npz", right * 1.17 + season, TARGETS)
    return folder


def diagnose(samples, *options, observed="observed.csv", folder):
    given = ("--samples", folder / samples, "--observations", folder / observed)
    return call("diagnose", *given, *options)


# Verdicts


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault, forecasts, place, unpainted):
    words = FAULTS[fault][1]
    done = diagnose(f"{fault}.parquet", "--out", "new/report.html", *FEW, folder=forecasts)
    first = done.stdout.splitlines()[0]
    assert "miscalibrated: " in first
    assert words in first
    assert ("dependence" in first) == (fault == "independent")
    assert "What to try: " in said(done)
    assert "│ marginal " in done.stdout
    assert "Page: new/report.html" in done.stdout
    page = Reader("new/report.html")
    assert (page.headline, page.mood) == (first, "bad")
    assert f"Forecasts in {fault}.parquet" in page.text
    assert list(contents(place)) == ["new", "new/report.html"]
    found = record(diagnose(f"{fault}.parquet", "--json", *FEW, folder=forecasts))
    assert found["verdict"]["headline"] == first
    assert found["verdict"]["mood"] == "bad"
    assert found["verdict"]["advice"]


def test_a_right_forecast_is_acquitted(forecasts, place, unpainted):
    words = said(diagnose("right.parquet", folder=forecasts))
    assert words.startswith("No evidence of miscalibration on 300 rows.")
    assert "Skipped hdr: hdr needs a density, which samples alone do not have" in words
    for python in ("Ensemble", "log_prob", "distribution with"):
        assert python not in words
    options = ("--out", "report.html", "--preranks", "marginal", "--quiet")
    done = diagnose("right.parquet", *options, folder=forecasts)
    assert said(done) == "No evidence of miscalibration on 300 rows."
    page = Reader("report.html")
    assert page.mood == "good"
    assert "No evidence" in page.headline


def test_the_check_has_a_code_of_its_own(forecasts):
    wrong = diagnose("too narrow.parquet", "--check", "--quiet", folder=forecasts)
    assert (wrong.exit_code, wrong.stderr) == (4, "")
    line = "Strongly miscalibrated: predictions too narrow in every target.\n"
    assert wrong.stdout == line
    right = diagnose("right.parquet", "--check", "-q", folder=forecasts)
    assert (right.exit_code, right.stderr) == (0, "")
    assert right.stdout == "No evidence of miscalibration on 300 rows.\n"
    done = diagnose("biased.parquet", "--check", "--json", folder=forecasts)
    assert done.exit_code == 4
    assert record(done)["verdict"]["mood"] == "bad"
    assert diagnose("biased.parquet", folder=forecasts).exit_code == 0  # nobody asked


def test_a_tolerance_is_shown_or_not(forecasts):
    options = ("--preranks", "marginal", "--check", "--within")
    wide = diagnose("right.parquet", *options, "0.3", "--json", folder=forecasts)
    assert wide.exit_code == 0, wide.output
    answer = record(wide)
    assert answer["equivalence"]["shown"]
    assert answer["equivalence"]["upper"] <= 0.3
    assert answer["verdict"]["headline"].startswith("Calibrated to within 0.3 at 95 %")
    narrow = diagnose("right.parquet", *options, "0.001", folder=forecasts)
    assert narrow.exit_code == 4
    assert "Not shown to be calibrated to within 0.001" in narrow.stdout
    for tolerance, code, words in (("0.3", 0, "Calibrated"), ("0.001", 4, "Not shown")):
        one = diagnose("right.parquet", *options, tolerance, "--quiet", folder=forecasts)
        assert (one.exit_code, one.stdout.count("\n")) == (code, 1)
        assert one.stdout.startswith(words)  # the claim that the code is about
    groups = record(
        diagnose("right.parquet", *options, "0.3", "--by", "season", "--json", folder=forecasts)
    )["groups"].values()
    assert all(one["equivalence"]["shown"] for one in groups)
    assert all(one["verdict"]["headline"].startswith("Calibrated to within") for one in groups)


def test_json_is_all_that_is_printed(forecasts):
    done = diagnose("right.parquet", "--json", folder=forecasts)
    assert (done.exit_code, done.stderr) == (0, "")
    found = record(done)
    assert set(found) == {"n", "verdict", "findings", "skipped", "remarks"}
    assert found["n"] == N
    components = [row for row in found["findings"] if row["component"] != "all"]
    assert {row["component"] for row in components} > set(TARGETS)
    assert all(row["p_holm"] is None for row in components)
    assert all(0 < row["p_value"] <= 1 for row in found["findings"])


def test_groups(forecasts, place, unpainted):
    """Right over all rows, and wrong in opposite ways within the seasons."""
    options = ("--by", "season", "--preranks", "marginal", "--check")
    done = diagnose("seasonal.npz", *options, "--out", "report.html", folder=forecasts)
    assert (done.exit_code, done.stderr) == (4, "")
    lines = done.stdout.splitlines()
    assert "- Within groups: evidence of miscalibration in 2 of 2." in lines
    told = {line.partition(": ")[0]: line for line in lines if line.startswith(("summer", "[w"))}
    assert "observed values lower than predicted" in told["summer"]
    assert "observed values higher than predicted" in told["[winter]"]
    page = Reader("report.html")
    assert page.mood == "bad"
    assert page.headline == (
        "Evidence of miscalibration within [winter] and summer, though not over all rows."
    )
    assert "Within groups: evidence of miscalibration in 2 of 2." in page.text
    assert page.headline in lines
    done = diagnose("seasonal.npz", *options, "--quiet", folder=forecasts)
    assert (done.exit_code, done.stdout) == (4, f"{page.headline}\n")
    done = diagnose("seasonal.npz", *options, "--json", folder=forecasts)
    found = record(done)
    assert done.exit_code == 4
    assert found["verdict"]["mood"] == "bad"  # as the code says
    assert found["verdict"]["headline"] == page.headline
    assert {name: one["n"] for name, one in found["groups"].items()} == {
        "[winter]": 150,
        "summer": 150,
    }
    assert {one["verdict"]["mood"] for one in found["groups"].values()} == {"bad"}


def test_groups_of_a_right_forecast(forecasts):
    options = ("--by", "season", "--preranks", "marginal", "--check")
    words = said(diagnose("right.parquet", *options, folder=forecasts))
    assert (
        "Within groups: evidence of miscalibration in 0 of 2; too few rows to tell in 2." in words
    )
    done = diagnose("right.parquet", *options, "--json", folder=forecasts)
    assert (done.exit_code, record(done)["verdict"]["mood"]) == (0, "good")


def test_targets_and_preranks_are_chosen(forecasts):
    options = ("--targets", "wind,rain", "--preranks", "marginal+copula", "--json", "--seed", "3")
    found = record(diagnose("right.parquet", *options, folder=forecasts))
    names = [(row["prerank"], row["component"]) for row in found["findings"]]
    assert names == [
        *(("marginal", name) for name in ("all", "wind", "rain")),
        ("copula", "all"),
    ]


def test_p_values_have_one_form(forecasts, place, unpainted):
    """On the terminal, in words, and on the page."""
    done = diagnose("too narrow.parquet", "--out", "report.html", *FEW, folder=forecasts)
    rows = [line.split("│") for line in done.stdout.splitlines() if line.startswith("│")]
    numbers = {row[1].strip(): row[-2].strip() for row in rows}
    assert numbers["scale"] == "<0.001"
    assert "scale fails: error 0." in done.stdout
    assert ", corrected p < 0.001; " in done.stdout
    assert "<0.001" in Reader("report.html").text
    done = diagnose("right.parquet", *FEW, folder=forecasts)
    for line in done.stdout.splitlines():
        if line.startswith("│"):
            p = line.split("│")[-2].strip()
            assert p == f"{float(p):.3f}"


NAMES = ("rain, in mm", "風速", "sun")  # a comma, and letters that matplotlib's font does not have


def test_names_of_all_kinds(place):
    random = np.random.default_rng(0)
    observed, samples = random.normal(size=(60, 3)), random.normal(size=(20, 60, 3))
    pd.DataFrame(observed, columns=list(NAMES)).to_csv("observed.csv", index=False)
    write_samples("samples.parquet", samples, NAMES)
    given = ("--targets", "風速,sun", "--targets", "rain, in mm", "--preranks", "marginal")
    done = diagnose("samples.parquet", *given, "--out", "report.html", folder=place)
    assert done.stderr == ""
    assert '風速, sun, "rain, in mm"' in Reader("report.html").text
    found = record(diagnose("samples.parquet", *given, "--json", folder=place))
    components = [row["component"] for row in found["findings"]]
    assert components == ["all", "風速", "sun", "rain, in mm"]
    quoted = ("--targets", 'sun,"rain, in mm"', "--json")
    found = record(diagnose("samples.parquet", *quoted, folder=place))
    assert [row["component"] for row in found["findings"]][1:3] == ["sun", "rain, in mm"]


def test_seeds_reproduce_the_numbers(forecasts, place):
    """Ties are broken at random."""
    random = np.random.default_rng(0)
    np.save("samples.npy", random.integers(3, size=(20, 80, 1)))
    pd.DataFrame({"count": random.integers(3, size=80)}).to_csv("observed.csv", index=False)
    first, again, other = (
        diagnose("samples.npy", "--json", "--seed", seed, folder=place).stdout for seed in "001"
    )
    assert first == again != other


@pytest.mark.parametrize("factor", [0.0, 1e-200, 1.0, 1e200], ids=str)
def test_units_do_not_matter(factor, forecasts, place):
    random = np.random.default_rng(0)
    np.save("samples.npy", factor * random.normal(size=(30, 60, 2)))
    table = pd.DataFrame(factor * random.normal(size=(60, 2)), columns=["a", "b"])
    table.to_csv("observed.csv", index=False)
    found = record(diagnose("samples.npy", "--json", "--scale", "samples", folder=place))
    assert found["n"] == 60
    if factor == 1e200:  # as for the numbers themselves
        np.save("samples.npy", np.load("samples.npy") / 1e200)
        (table / 1e200).to_csv("observed.csv", index=False)
        plain = record(diagnose("samples.npy", "--json", "--scale", "samples", folder=place))
        assert plain["verdict"] == found["verdict"]


@pytest.mark.parametrize("scale", ["none", "samples"])
def test_the_same_answers_as_in_python(scale, forecasts):
    """Same files, same numbers: units, seeds, draws and replicates have the same defaults."""
    table = pd.read_csv(forecasts / "observed.csv")[list(TARGETS)] * [1, 1000, 1]
    samples = read_forecasts(forecasts / "right.parquet", forecasts / "observed.csv").samples
    write_samples(forecasts / "units.parquet", samples * [1, 1000, 1], TARGETS)
    table.to_csv(forecasts / "units.csv", index=False)
    options = () if scale == SCALE else ("--scale", scale)
    done = diagnose("units.parquet", "--json", *options, observed="units.csv", folder=forecasts)
    told = record(done)
    diagnosis = prerank.diagnose(
        prerank.Ensemble(samples * [1, 1000, 1]),
        table,
        **({} if scale == SCALE else {"scale": scale}),
    )
    assert told["verdict"]["headline"] == diagnosis.verdict().headline
    assert told["verdict"]["points"] == list(diagnosis.verdict().points)
    for row, finding in zip(told["findings"], diagnosis.findings, strict=True):
        assert row["p_value"] == finding.p_value
        assert row["pce"] == finding.pce
    units = {
        "none": "Units: original.",
        "samples": "Units: each target divided by the spread of its samples.",
    }
    assert units[scale] in told["verdict"]["points"]


def test_raw_units_is_still_understood(forecasts):
    options = ("--json", "--preranks", "location")
    plain = record(diagnose("right.parquet", *options, folder=forecasts))
    raw = diagnose("right.parquet", *options, "--raw-units", folder=forecasts)
    assert raw.stderr.startswith("Warning: --raw-units is deprecated: use --scale none; it ends")
    old = record(raw)
    named = record(diagnose("right.parquet", *options, "--scale", "none", folder=forecasts))
    assert plain == old == named
    both = ("--raw-units", "--scale", "samples")
    assert refused(diagnose("right.parquet", *both, folder=forecasts)) == (
        "--raw-units and --scale samples exclude each other: drop one"
    )


def test_remarks_are_told(forecasts, place):
    pd.read_csv(forecasts / "observed.csv")[:250].assign(day=range(250)).to_csv("o.csv")
    wide = {"day": range(240), **{f"rain_{k}": np.arange(240.0) + k for k in range(3)}}
    pd.DataFrame(wide).to_csv("s.csv", index=False)
    done = diagnose("s.csv", "--preranks", "marginal", observed="o.csv", folder=place)
    notes = [line for line in done.stdout.splitlines() if line.startswith("Note: ")]
    assert any("10 of 250 rows" in note for note in notes)


def test_targets_that_one_file_has_alone_are_told(forecasts, place, unpainted):
    """On the terminal, on the page and to scripts."""
    table = pd.read_csv(forecasts / "observed.csv")
    table.rename(columns={"wind": "Wind"}).to_csv("o.csv", index=False)
    told = (
        "samples without a column in o.csv were not judged: wind",
        "columns of o.csv without samples were not judged: Wind",
    )
    given = ("--samples", forecasts / "right.parquet", "--observations", "o.csv")
    done = call("diagnose", *given, "--preranks", "location", "--out", "report.html")
    page = Reader("report.html")
    found = record(call("diagnose", *given, "--preranks", "location", "--json"))
    for words in told:
        assert f"Note: {words}." in done.stdout.splitlines()
        assert f"Note: {words}." in page.text
        assert words in found["remarks"]


def test_many_groups_of_a_right_forecast(forecasts, place):
    """Some p-values are small by chance, and raise no alarm; 300 rows are few for 61 diagnoses."""
    table = pd.read_csv(forecasts / "observed.csv")
    table["group"] = np.arange(N) % 60
    table.to_csv("o.csv", index=False)
    given = ("--samples", forecasts / "right.parquet", "--observations", "o.csv", "--by", "group")
    options = ("--targets", ",".join(TARGETS), "--scale", "samples", "--check", "--json")
    done = call("diagnose", *given, *options)
    found = record(done)
    assert (done.exit_code, found["verdict"]["mood"]) == (0, "unclear")
    assert {one["verdict"]["mood"] for one in found["groups"].values()} == {"unclear"}
    assert min(row["p_value"] for one in found["groups"].values() for row in one["findings"]) < 0.01


# What is refused

FILES = {
    "no samples": (("none.npy", "observed.csv"), "none.npy: cannot be read: No such file"),
    "no observations": (("s.npy", "none.csv"), "none.csv: cannot be read: No such file"),
    "empty": (("empty.csv", "observed.csv"), "empty.csv: the file is empty"),
    "header alone": (("header.csv", "observed.csv"), "header.csv: the table has no rows"),
    "no suffix": (("folder", "observed.csv"), "folder: a file that ends in '' cannot be read"),
    "a folder": (("folder.csv", "observed.csv"), "folder.csv: cannot be read: Is a directory"),
    "unknown": (("s.xlsx", "observed.csv"), "ends in '.xlsx' cannot be read"),
    "broken": (("broken.npz", "observed.csv"), "broken.npz: the file is damaged, or was not wr"),
    "damaged": (("damaged.npz", "observed.csv"), "damaged.npz: the file is damaged, or was not"),
    "objects": (("objects.npy", "observed.csv"), "objects.npy: the file holds Python objects: w"),
    "targets alike": (("alike.npz", "observed.csv"), "array 'targets' names a more than once: g"),
    "not numbers": (("nan.npy", "observed.csv"), "values are missing, NaN or infinite"),
    "missing observation": (("s.npy", "gap.csv"), "1 of 9 observations are missing"),
    "text observed": (("s.npy", "text.csv"), "which does not fit 9 rows and 1 targets"),
    "rows that differ": (("short.npy", "observed.csv"), "which does not fit 9 rows"),
    "one sample": (("one.npy", "observed.csv"), "where 2 are needed"),
}


@pytest.fixture
def files(place):
    """Nine rows, and files that are wrong in many ways."""
    samples = np.random.default_rng(0).normal(size=(5, 9, 2))
    table = pd.DataFrame(samples[0], columns=["a", "b"])
    table.to_csv("observed.csv", index=False)
    table.assign(a=table.a.where(table.index != 3)).to_csv("gap.csv", index=False)
    table.assign(a="high").to_csv("text.csv", index=False)
    np.save("s.npy", samples)
    np.save("short.npy", samples[:, :8])
    np.save("one.npy", samples[:1])
    np.save("nan.npy", np.where(samples == samples[0, 0, 0], np.nan, samples))
    (place / "broken.npz").write_bytes(b"PK")
    np.savez("alike.npz", samples=samples, targets=["a", "a"])
    whole = (place / "alike.npz").read_bytes()
    (place / "damaged.npz").write_bytes(whole[: len(whole) // 2])
    np.save("objects.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    (place / "s.xlsx").write_bytes(b"PK")
    (place / "empty.csv").touch()
    (place / "header.csv").write_text("sample,a,b\n")
    for name in ("folder", "folder.csv"):
        (place / name).mkdir()
    return place


def test_files_that_are_refused(files):
    before = contents(files)
    for case, ((samples, observed), words) in FILES.items():
        given = ("--samples", samples, "--observations", observed, "--out", "new/report.html")
        line = refused(call("diagnose", *given))
        assert words in line, case
        assert "pickle" not in line
        assert contents(files) == before, case


OPTIONS = {
    "prerank": (("--preranks", "marginl"), "unknown prerank 'marginl'. Did you mean 'marginal'?"),
    "density": (("--preranks", "hdr"), "hdr needs a density"),
    "no prerank": (("--preranks", ""), "cannot read ''"),
    "group": (("--by", "c"), "no column 'c' for the groups"),
    "axis": (("--sample-axis", "7"), "sample_axis (--sample-axis) is 7"),
    "sample": (("--sample", "member"), "use sample_axis (--sample-axis) for arrays"),
    "target twice": (("--targets", "a,a,b"), "targets (--targets) names a more than once: name e"),
    "key twice": (("--key", "a", "--key", "a"), "key (--key) names a more than once: name each"),
    "page of another kind": (("--out", "r.pdf"), "r.pdf: the page to write must end in .html or"),
    "page over samples": (("--out", "s.npy"), "s.npy is read by this command"),
    "page over observations": (("--out", "./observed.csv"), "observed.csv is read by this command"),
    "page below a file": (("--out", "s.npy/r.html"), "cannot write s.npy/r.html: Not a directory"),
    "page nowhere": (("--out", "/proc/r.html"), "cannot write /proc/r.html: "),
    "page on a device": (("--out", "full.html"), "full.html is not a file: it is not replaced"),
}


def test_options_that_are_refused(files):
    before = contents(files)
    for case, (options, words) in OPTIONS.items():
        (files / "full.html").symlink_to("/dev/full")
        given = ("--samples", "s.npy", "--observations", "observed.csv", *options)
        assert words in refused(call("diagnose", *given)), case
        (files / "full.html").unlink()
        assert contents(files) == before, case


BAD_USAGE = [
    (("--targets", ""), "--targets"),
    (("--key", "a,,b"), "--key"),
    (("--sample-axis", "first"), "--sample-axis"),
    (("--seed", "-1"), "--seed"),
    (("--scale", "metres"), "--scale"),
    (("--out", "folder"), "--out"),
    (("--frobnicate",), "--frobnicate"),
]


def test_usage_that_is_not_known(files):
    before = contents(files)
    for words, named in BAD_USAGE:
        done = call("diagnose", "--samples", "s.npy", "--observations", "observed.csv", *words)
        assert (done.exit_code, done.stdout) == (2, ""), words
        assert named in done.stderr
        assert contents(files) == before, words


def test_both_files_are_needed(files):
    assert call("diagnose", "--samples", "s.npy").exit_code == 2
    assert call("diagnose", "--observations", "observed.csv").exit_code == 2


def test_a_full_disk(files, unpainted):
    before = contents(files)
    given = ("--samples", "s.npy", "--observations", "observed.csv", "--out", "new/report.html")
    with small_files():
        done = call("diagnose", *given, "--preranks", "marginal")
    assert refused(done) == "cannot write new/report.html: File too large"
    assert contents(files) == before
