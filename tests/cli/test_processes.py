"""Commands in a process of their own, as a user starts them."""

import numpy as np
import pandas as pd

import prerank
from cli.commands import QUICK, Reader, call, run, run_several, said
from prerank.study import Store
from study.tiny import rows_of, tiny

PLAN = tiny(datasets=("ar1",), variants=("none", "marginal"), max_epochs=2)


def test_version(tmp_path):
    assert said(run("--version", cwd=tmp_path)) == f"prerank {prerank.__version__}"


def test_several_commands(rivers, write, place):
    """A model, its predictions, their diagnosis and a study; pages have their pictures.

    Names have commas, and letters that matplotlib's font does not have.
    """
    named = rivers.rename(columns={"flow": "flow, m3", "load": "流砂量", "bed": "bed, kind"})
    table, far = write(named), write(named.assign(流砂量=named.流砂量 + 5), "far.csv")
    (place / "plan.toml").write_text(PLAN.to_toml(), encoding="utf-8")
    workers = ("--engine", "processes", "--workers", "1")
    targets = ("--targets", "flow, m3", "--targets", "流砂量")
    judged = ("--samples", "p.samples.parquet", "--observations", far, "--preranks", "marginal")
    fit, predict, diagnose, study = run_several(
        ("fit", table, *targets, "--ignore", "bed, kind", "--strength", "5", "--out", "m", *QUICK),
        ("predict", "m", table, "--out", "p.parquet", "--samples", "40"),
        ("diagnose", *judged, "--check"),
        ("study", "run", "plan.toml", "--out", "study", "--device", "cpu", *workers),
        cwd=place,
    )
    _check_model(said(fit))
    assert "100 rows: p.parquet" in said(predict)
    means = pd.read_parquet("p.parquet")[["flow, m3_mean", "流砂量_mean"]]
    expected = prerank.load_model("m").predict(rivers[["depth", "wet"]])
    assert np.allclose(means, expected, rtol=1e-12)
    assert (diagnose.returncode, diagnose.stderr) == (4, "")
    assert diagnose.stdout == call("diagnose", *judged, "--check").stdout
    assert "All 2 units are done, 2 of them by this call" in said(study)
    words = ("plan.toml", "--out", "again", "--device", "cpu", "--engine", "local")
    assert call("study", "run", *words).exit_code == 0
    one, two = (rows_of(Store(place / name).results()) for name in ("study", "again"))
    pd.testing.assert_frame_equal(one, two, check_exact=True)


def _check_model(told):
    assert "Model: m; report: m/report.html" in told
    assert "Trained on 80 rows, 20 held out. Penalty: strength 5." in told
    assert prerank.load_model("m").target_names_ == ("flow, m3", "流砂量")
    page = Reader("m/report.html")
    assert page.headline in told
    assert "流砂量" in page.text
    assert "Example 1: observation" in page.text  # a title, and what the figure shows
