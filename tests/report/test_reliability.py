"""Displays: what they draw, and that they leave everything else alone."""

import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from torch.distributions import MultivariateNormal

from prerank import Ensemble, GaussianMixture, diagnose, pit
from prerank.calibration import reliability_band, reliability_curve
from prerank.errors import InputError, ShapeError
from prerank.report import ReliabilityDisplay, ReliabilityGrid


@pytest.fixture(autouse=True)
def _headless():
    """Draw without a screen, and fail a test whose code changes matplotlib's settings."""
    with mpl.rc_context():
        plt.switch_backend("Agg")
        before = dict(mpl.rcParams)
        yield
        plt.close("all")
        assert dict(mpl.rcParams) == before


def normal(rows=150, dim=3):
    return MultivariateNormal(torch.zeros(rows, dim), torch.eye(dim))


def display(label="scale", components=1, rows=150):
    curve = reliability_curve(torch.rand(rows, components))
    return ReliabilityDisplay(curve, reliability_band(rows), label=label)


def test_lines_are_the_curve_and_the_band_is_the_band():
    z = torch.rand(150, 2)
    shown = ReliabilityDisplay.from_pits(z, label="marginal", names=["a", "b"])
    curve, band = reliability_curve(z), reliability_band(150)
    assert shown.figure_ is shown.ax_.figure
    assert [line.get_label() for line in shown.lines_] == ["a", "b"]
    for j, line in enumerate(shown.lines_):
        np.testing.assert_allclose(line.get_xdata(), curve.levels, atol=1e-7)
        np.testing.assert_array_equal(line.get_ydata(), curve.observed[:, j])
    vertices = shown.band_.get_paths()[0].vertices
    for x, low, high in zip(band.levels, band.lower, band.upper, strict=True):
        column = vertices[np.isclose(vertices[:, 0], x), 1]
        assert column.min() == pytest.approx(float(low))
        assert column.max() == pytest.approx(float(high))
    diagonal = [line for line in shown.ax_.lines if line not in shown.lines_]
    assert [list(line.get_xdata()) == list(line.get_ydata()) == [0, 1] for line in diagonal] == [
        True
    ]
    assert shown.ax_.get_title() == "marginal"
    legend = [text.get_text() for text in shown.ax_.get_legend().get_texts()]
    assert legend == ["95 % band", "a", "b"]


def test_lines_differ_in_colour_and_in_style():
    shown = display(components=16).plot()
    looks = [(line.get_color(), line.get_linestyle()) for line in shown.lines_]
    assert len(set(looks)) == 16
    for first, second in itertools.pairwise(looks):
        assert first[0] != second[0]
        assert first[1] != second[1]


def test_plot_takes_axes_and_options():
    ax = Figure().subplots()
    shown = display()
    assert shown.plot(ax, linewidth=4) is shown
    assert shown.ax_ is ax
    assert shown.lines_[0].get_linewidth() == 4
    assert plt.get_fignums() == []  # no figure of its own


@pytest.mark.parametrize("prerank", ["marginal", "hdr", "pca(2)", "copula"])
def test_predictions_become_pits(prerank):
    dist = normal()
    y = pd.DataFrame(dist.sample().numpy(), columns=["rain", "wind", "hail"])
    shown = ReliabilityDisplay.from_predictions(
        dist, y, prerank, n_samples=40, level=0.9, levels=51, generator=3
    )
    z = pit(dist, y, prerank, n_samples=40, generator=3)
    torch.testing.assert_close(shown.curve.observed, reliability_curve(z, levels=51).observed)
    assert shown.band.level == 0.9
    assert shown.label == prerank
    expected = {"marginal": ("rain", "wind", "hail"), "pca(2)": ("pc1", "pc2")}
    assert shown.names == expected.get(prerank, (prerank,))


def test_captions_say_what_is_wrong():
    y = 0.4 * torch.randn(300, 2) + torch.tensor([0.0, 2.0])
    shown = ReliabilityDisplay.from_predictions(normal(300, 2), y, "marginal")
    assert shown.caption == (
        "marginal: PITs crowded in the middle (values too often near the predicted median) in y0; "
        "PITs too large (values too often above the predicted median) in y1."
    )


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0])
def test_a_level_that_no_band_has_is_refused(level):
    with pytest.raises(InputError, match="level"):
        ReliabilityDisplay.from_pits(torch.rand(60, 2), level=level)


def test_weighted_samples_have_no_band():
    weights = torch.tensor([0.5, 0.3, 0.2]).repeat(60, 1).T
    dist = Ensemble(torch.randn(3, 60, 2), weights)
    shown = ReliabilityDisplay.from_predictions(dist, torch.randn(60, 2), "scale")
    assert shown.band is None
    assert shown.band_ is None
    assert shown.caption == "scale: no band, since samples are weighted."
    (again,) = diagnose(dist, torch.randn(60, 2), preranks="scale").displays()
    assert again.band is None


# Grids


def test_grid_has_a_row_for_each_predictor():
    rows = {name: [display("marginal", 3), display("scale")] for name in ("before", "after")}
    grid = ReliabilityGrid(rows)
    assert grid.plot() is grid
    assert grid.axes_.shape == (2, 2)
    assert [ax.get_title() for ax in grid.axes_.flat] == ["marginal", "scale", "", ""]
    assert grid.axes_[0, 0].get_ylabel().startswith("before\n")
    assert grid.axes_[1, 0].get_ylabel().startswith("after\n")
    for (name, shown), axes in zip(rows.items(), grid.axes_, strict=True):
        assert [one.ax_ for one in shown] == list(axes), name
    assert [ax.get_legend() is not None for ax in grid.axes_.flat] == [False, False, True, True]


def test_grid_takes_a_figure():
    figure = Figure()
    assert ReliabilityGrid({"": [display()]}).plot(figure).figure_ is figure
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    "rows", [{}, {"a": []}, {"a": [display()], "b": []}, {"a": [display()], "b": [display("hdr")]}]
)
def test_rows_must_match(rows):
    with pytest.raises(InputError, match="same pre-ranks"):
        ReliabilityGrid(rows)


def test_diagnosis_plots_itself():
    y = pd.DataFrame(torch.randn(150, 3).numpy(), columns=["rain", "wind", "hail"])
    found = diagnose(normal(), y, generator=0, n_null=50)
    grid = found.plot(level=0.9)
    assert grid.labels == tuple(found.pits)
    assert grid.axes_.shape == (1, 7)
    (shown,) = grid.rows.values()
    assert shown[0].names == ("rain", "wind", "hail")
    assert shown[2].names == ("scale",)
    assert {one.band.level for one in shown} == {0.9}
    for one in shown:
        torch.testing.assert_close(one.curve.observed, found.curves[one.label].observed)
        assert isinstance(one.caption, str)


def test_a_stack_has_a_row_for_each_model():
    eye = torch.eye(2).expand(3, 80, 1, 2, 2)
    dist = GaussianMixture(torch.zeros(3, 80, 1), torch.randn(3, 80, 1, 2), eye)
    found = diagnose(dist, torch.randn(3, 80, 2), preranks="marginal+scale", n_null=50)
    grid = found.plot(Figure())
    assert list(grid.rows) == ["model 0", "model 1", "model 2"]
    for model, shown in enumerate(grid.rows.values()):
        torch.testing.assert_close(
            shown[0].curve.observed, found.curves["marginal"].observed[model]
        )


# What is refused, and what is left alone


def test_bad_shapes_are_refused():
    curve = reliability_curve(torch.rand(2, 50, 3))
    with pytest.raises(ShapeError, match="one predictor"):
        ReliabilityDisplay(curve, None)
    with pytest.raises(ShapeError, match="2 names for 3 components"):
        ReliabilityDisplay.from_pits(torch.rand(50, 3), names=["a", "b"])
    with pytest.raises(ShapeError, match=r"\(50,\)"):
        ReliabilityDisplay.from_pits(torch.rand(50))
    with pytest.raises(InputError, match="one pre-rank, got 2"):
        ReliabilityDisplay.from_predictions(normal(), torch.zeros(150, 3), "marginal+hdr")


def test_nothing_is_shown(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *_: pytest.fail("show was called"))
    ReliabilityGrid({"": [display().plot()]}).plot()
