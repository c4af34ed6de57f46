"""The command line, as a user runs it."""

import os
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal
from typer.testing import CliRunner

import prerank
from cli.commands import call, refused, run, said, small_files
from prerank.cli import app
from prerank.cli.demo import _verdict, _write_figure
from prerank.report import ReliabilityGrid
from prerank.training import Trial, choose_strength


def tables(output):
    """Cells of the rows of each table that was printed."""
    found = []
    for line in output.splitlines():
        if line.startswith("┏"):
            found.append([])
        if line.startswith("│"):
            found[-1].append([cell.strip() for cell in line.split("│")[1:-1]])
    return found


def test_help_lists_the_commands():
    line = said(call("--help"))
    for word in ("demo", "fit", "predict", "diagnose", "study", "datasets", "--version"):
        assert word in line


BAD = [
    ((), "Usage"),
    (("demonstrate",), "demonstrate"),
    (("demo", "--max-epochs", "0"), "--max-epochs"),
    (("demo", "--seed", "many"), "--seed"),
    (("demo", "--out", __file__), "--out"),
]


@pytest.mark.parametrize(
    ("arguments", "word"), BAD, ids=[" ".join(a[:2]) or "nothing" for a, _ in BAD]
)
def test_bad_arguments_exit_with_2(arguments, word):
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert word in done.output


# The demonstration

PRERANKS = ["marginal *", "location", "scale *", "dependency", "pca", "hdr *", "copula"]


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A demonstration that trains too little, and where it was run."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return call("demo", "--max-epochs", "2"), folder


def test_demo_compares_two_models(quick):
    done, _ = quick
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""  # no progress bar outside a terminal
    assert "379 rows to train and select, 190 held out" in done.stdout
    trace, comparison = tables(done.stdout)
    assert [row[0] for row in trace] == ["0", "10"]  # all splits; others lost on the first one
    assert [row[0] for row in comparison[:-1]] == PRERANKS
    for _, *numbers in comparison[:-1]:
        excess_before, excess_after, p_before, p_after = (float(n.strip("<")) for n in numbers)
        assert min(excess_before, excess_after) > -0.03  # minus the floor, 0.0225
        assert 0 < min(p_before, p_after) <= max(p_before, p_after) <= 1
    energy = comparison[-1]
    first, second = float(energy[1]), float(energy[2])
    assert energy[0] == f"energy score ({second / first - 1:+.1%})"


def test_demo_writes_one_figure_and_says_where(quick):
    done, folder = quick
    assert [file.relative_to(folder).as_posix() for file in folder.rglob("*")] == [
        "prerank-demo",
        "prerank-demo/reliability.png",
    ]
    assert "prerank-demo/reliability.png" in done.stdout.replace(os.sep, "/")
    image = (folder / "prerank-demo" / "reliability.png").read_bytes()
    assert image.startswith(b"\x89PNG")
    assert image.rstrip().endswith(b"IEND\xaeB`\x82")


def test_a_figure_that_fails_leaves_nothing(found, tmp_path, monkeypatch):
    def fail(self, figure):
        raise RuntimeError("no ink")

    monkeypatch.setattr(ReliabilityGrid, "plot", fail)
    with pytest.raises(RuntimeError, match="no ink"):
        _write_figure(tmp_path / "new" / "figure.png", found, found)
    assert list(tmp_path.iterdir()) == []


def test_a_demo_in_a_folder_that_cannot_be_made(tmp_path):
    """It is refused before the training."""
    (tmp_path / "file").write_text("in the way")
    line = refused(call("demo", "--out", tmp_path / "file" / "new"))
    assert line.endswith("reliability.png: Not a directory")


def test_a_demo_on_a_full_disk(found, tmp_path, monkeypatch):
    def untrained(out, seed, max_epochs):
        _write_figure(out / "reliability.png", found, found)

    monkeypatch.setattr(import_module("prerank.cli.demo"), "_compare", untrained)
    with small_files():
        done = call("demo", "--out", tmp_path / "new" / "demo")
    assert done.exit_code == 1
    file = tmp_path / "new" / "demo" / "reliability.png"
    assert done.stderr == f"Error: cannot write {file}: File too large\n"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def found():
    """A right predictor."""
    dist = MultivariateNormal(torch.zeros(80, 2), torch.eye(2))
    y = torch.randn(80, 2, generator=torch.Generator().manual_seed(0))
    return prerank.diagnose(dist, y, preranks="marginal+scale+hdr", n_null=100, generator=0)


def with_p_values(found, **p_values):
    rows = [replace(row, p_holm=p_values.get(row.prerank, row.p_holm)) for row in found.findings]
    return replace(found, findings=tuple(rows))


def trial(strength, excess, energy):
    return Trial(strength, np.full(3, excess), np.full(3, energy))


def test_verdict_when_nothing_qualifies(found):
    selection = choose_strength([trial(0.0, 0.05, 1.0), trial(1.0, 0.06, 1.0)])
    first, second = _verdict(selection, found, found)
    assert first == f"Nothing was gained: {selection.reason}."
    assert "without a penalty" in second


def test_verdict_names_what_changed_either_way(found):
    selection = choose_strength([trial(0.0, 0.05, 1.0), trial(1.0, 0.01, 1.02)])
    before = with_p_values(found, marginal=0.01, scale=0.01, hdr=0.2)
    after = with_p_values(found, marginal=0.9, scale=0.01, hdr=0.001)
    lines = _verdict(selection, before, after)
    assert lines[0] == f"Selected: {selection.reason}."
    assert lines[1:4] == [
        "Evidence of miscalibration (p < 0.05) is gone: marginal.",
        "Evidence of miscalibration (p < 0.05) remains: scale.",
        "Evidence of miscalibration (p < 0.05) is new: hdr.",
    ]
    shapes = [line.split(":")[0] for line in lines[4:]]
    assert shapes == ["Before, marginal", "Before, scale", "After, scale", "After, hdr"]


@pytest.mark.slow
def test_demo_shows_an_effect(tmp_path):
    done = run("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Nothing was gained" not in done.stdout
    _, comparison = tables(done.stdout)
    penalised = np.array([row[1:3] for row in comparison if "*" in row[0]], dtype=float)
    before, after = penalised.sum(0)
    assert after < before / 2
    first, second = map(float, comparison[-1][1:3])
    assert second < 1.1 * first
