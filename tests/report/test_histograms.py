"""PIT histograms: what they draw, what they say, and what they refuse."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from torch.distributions import MultivariateNormal

from prerank import Ensemble, pit
from prerank.calibration import DeviationShape, histogram_band, pit_histogram
from prerank.errors import InputError, PrerankError, ShapeError
from prerank.report import PITHistogramDisplay, ReliabilityDisplay


def normal(rows=150, dim=3):
    return MultivariateNormal(torch.zeros(rows, dim), torch.eye(dim))


def overlaps(figure):
    """Pairs of visible writings of a figure that lie upon each other."""
    figure.canvas.draw()
    found = []
    for ax in figure.axes:
        texts = [ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels()]
        texts += ax.get_yticklabels()
        texts += ax.get_legend().get_texts() if ax.get_legend() else []
        found += [text for text in texts if text.get_visible() and text.get_text().strip()]
    boxes = [text.get_window_extent().shrunk(0.9, 0.7) for text in found]
    return [
        (found[a].get_text(), found[b].get_text())
        for a in range(len(found))
        for b in range(a)
        if boxes[a].overlaps(boxes[b])
    ]


def test_bars_are_the_histogram_and_the_band_is_the_band():
    z = torch.rand(150, 2)
    shown = PITHistogramDisplay.from_pits(z, label="marginal", names=["a", "b"])
    histogram, band = pit_histogram(z, bins=10), histogram_band(150, 10)
    assert shown.figure_ is shown.ax_.figure
    assert [ax.get_title() for ax in shown.axes_] == ["a", "b"]
    for j, (bars, drawn) in enumerate(zip(shown.bars_, shown.bands_, strict=True)):
        values, edges, _ = bars.get_data()
        np.testing.assert_array_equal(values, histogram.density[:, j])
        np.testing.assert_array_equal(edges, histogram.edges)
        low, high = drawn.get_y(), drawn.get_y() + drawn.get_height()
        assert (low, high) == pytest.approx((band.lower, band.upper))
    assert shown.axes_[0].get_title(loc="left").strip() == "marginal"
    legend = [text.get_text() for text in shown.axes_[-1].get_legend().get_texts()]
    assert legend == ["95 % band"]


def test_bins_follow_the_number_of_rows():
    for rows, bins in ((1, 10), (399, 10), (400, 20)):
        shown = PITHistogramDisplay.from_pits(torch.rand(rows, 1))
        assert shown.histogram.density.shape == (bins, 1)
        assert shown.band.bins == bins
    assert PITHistogramDisplay.from_pits(torch.rand(50, 1), bins=7).band.bins == 7


@pytest.mark.parametrize("components", [1, 2, 3, 5, 16])
def test_each_component_has_a_legible_panel(components):
    names = [f"temperature_{j}" for j in range(components)]
    shown = PITHistogramDisplay.from_pits(torch.rand(500, components), label="all", names=names)
    assert len(shown.axes_) == len(shown.bars_) == components
    assert len({ax.get_ylim() for ax in shown.axes_}) == 1
    assert overlaps(shown.figure_) == []
    assert [ax for ax in shown.figure_.axes if ax is not shown.ax_] == (
        shown.axes_ if components > 1 else []
    )
    last_rows = [ax for ax in shown.axes_ if ax.get_xlabel() == "PIT"]
    assert len(last_rows) == shown._grid[1]


@pytest.mark.parametrize("components", [1, 4])
@pytest.mark.parametrize("place", ["grid", "part", "free"])
def test_plot_takes_axes_and_options(components, place):
    figure = Figure(figsize=(8, 4))
    if place == "free":
        ax = figure.add_axes((0.2, 0.2, 0.5, 0.5))
    elif place == "part":
        ax = figure.subfigures(1, 2)[1].subplots()
    else:
        ax = figure.subplots(1, 2)[1]
    box = ax.get_position()
    histogram = pit_histogram(torch.rand(90, components), bins=10)
    shown = PITHistogramDisplay(histogram, histogram_band(90, 10))
    assert shown.plot(ax, linewidth=4, legend=False) is shown
    assert shown.ax_ is ax
    assert shown.figure_ is ax.figure
    assert shown.bars_[0].get_linewidth() == 4
    assert all(panel.get_legend() is None for panel in shown.axes_)
    for panel in shown.axes_:
        inner = panel.get_position()
        assert box.x0 - 1e-9 <= inner.x0 < inner.x1 <= box.x1 + 1e-9
        assert box.y0 - 1e-9 <= inner.y0 < inner.y1 <= box.y1 + 1e-9
    figure.canvas.draw()
    assert plt.get_fignums() == []  # no figure of its own


@pytest.mark.parametrize("prerank", ["marginal", "hdr", "pca(2)"])
def test_predictions_become_pits(prerank):
    dist = normal()
    y = pd.DataFrame(dist.sample().numpy(), columns=["rain", "wind", "hail"])
    shown = PITHistogramDisplay.from_predictions(
        dist, y, prerank, n_samples=40, level=0.9, bins=8, generator=3
    )
    z = pit(dist, y, prerank, n_samples=40, generator=3)
    torch.testing.assert_close(shown.histogram.density, pit_histogram(z, bins=8).density)
    assert shown.band.level == 0.9
    assert shown.label == prerank
    expected = {"marginal": ("rain", "wind", "hail"), "pca(2)": ("pc1", "pc2")}
    assert shown.names == expected.get(prerank, (prerank,))


def test_captions_say_what_is_wrong_in_the_words_of_the_reliability_curves():
    even = torch.special.ndtri((torch.arange(600) + 0.5) / 600)
    noise = torch.stack([even[torch.randperm(600)] for _ in range(4)], -1)
    y = noise * torch.tensor([1.0, 2.0, 0.4, 1.0]) + torch.tensor([0.0, 0.0, 0.0, -1.0])
    shown = PITHistogramDisplay.from_predictions(normal(600, 4), y, "marginal")
    assert shown.caption == (
        "marginal: within the 95 % band in y0; PITs crowded at both ends (values too often far "
        "from the predicted median) in y1; PITs crowded in the middle (values too often near the "
        "predicted median) in y2; PITs too small (values too often below the predicted median) in "
        "y3."
    )
    curves = ReliabilityDisplay.from_predictions(normal(600, 4), y, "marginal")
    assert shown.caption == curves.caption
    density = shown.histogram.density[:, 1]
    assert min(density[0], density[-1]) > shown.band.upper > density[5:-5].max()  # a U


def test_bars_and_curves_of_the_same_pits_name_the_same_shapes(monkeypatch):
    """Bars added up are a coarse curve, and what that shows may differ from the curve itself."""
    for display in (PITHistogramDisplay, ReliabilityDisplay):
        monkeypatch.setattr(display, "plot", lambda self, *_, **__: self)
    random = torch.Generator().manual_seed(0)
    coarse = 0
    for power in torch.linspace(0.6, 1.8, 60):
        z = torch.rand(300, 1, generator=random) ** power
        z = torch.where(z < 0.5, z, 0.5 + (z - 0.5) ** 1.2 / 0.5**0.2)
        bars = PITHistogramDisplay.from_pits(z, label="marginal", names=["rain"])
        curve = ReliabilityDisplay.from_pits(z, label="marginal", names=["rain"])
        (ours,), (theirs,) = bars.shapes, curve.shapes
        assert (ours.shift, ours.spread) == (theirs.shift, theirs.spread)
        if ours.outside and theirs.outside:
            assert bars.caption == curve.caption
        (own,) = PITHistogramDisplay(bars.histogram, bars.band).shapes
        coarse += (own.shift, own.spread) != (theirs.shift, theirs.spread)
    assert coarse > 0  # or there would be nothing to agree upon


def test_densities_have_words_of_their_own():
    shown = PITHistogramDisplay.from_predictions(normal(), 3 * torch.randn(150, 3), "hdr")
    assert "density is low" in shown.caption


def test_weighted_samples_have_no_band():
    weights = torch.tensor([0.5, 0.3, 0.2]).repeat(60, 1).T
    dist = Ensemble(torch.randn(3, 60, 2), weights)
    shown = PITHistogramDisplay.from_predictions(dist, torch.randn(60, 2), "scale")
    assert shown.band is None
    assert shown.bands_ == []
    assert shown.ax_.get_legend() is None
    assert shown.caption == "scale: no band, since samples are weighted."
    assert PITHistogramDisplay.from_pits(torch.rand(60, 2), band=False).band is None


def test_one_row_and_names_with_signs():
    names = ["cost $ of $x^", "_hidden"]
    shown = PITHistogramDisplay.from_pits(torch.rand(1, 2), label="marginal", names=names)
    shown.figure_.canvas.draw()
    assert "within the 95 % band" in shown.caption


BAD_PITS = [
    (torch.rand(50), ShapeError, r"\(50,\)"),
    (torch.rand(2, 50, 3), ShapeError, "one predictor"),
    (torch.rand(50, 1) + 1, InputError, r"\[0, 1\]"),
    (torch.full((5, 1), torch.nan), InputError, "NaN"),
    (torch.rand(0, 1), ShapeError, "empty"),
    ("z", PrerankError, "z must"),
]


@pytest.mark.parametrize(("z", "error", "words"), BAD_PITS)
def test_bad_pits_are_refused(z, error, words):
    with pytest.raises(error, match=words):
        PITHistogramDisplay.from_pits(z)
    assert plt.get_fignums() == []


def test_bad_arguments_are_refused():
    histogram = pit_histogram(torch.rand(50, 3), bins=10)
    with pytest.raises(ShapeError, match="2 names for 3 components"):
        PITHistogramDisplay(histogram, None, names=["a", "b"])
    with pytest.raises(ShapeError, match="1 curves for 3 components"):
        PITHistogramDisplay(histogram, None, curves=[DeviationShape(True, 0, 1)])
    with pytest.raises(ShapeError, match="band is for 12 bins, but the histogram has 10"):
        PITHistogramDisplay(histogram, histogram_band(50, 12))
    with pytest.raises(InputError, match="one pre-rank, got 2"):
        PITHistogramDisplay.from_predictions(normal(), torch.zeros(150, 3), "marginal+hdr")
    with pytest.raises(InputError, match="bins"):
        PITHistogramDisplay.from_pits(torch.rand(50, 1), bins=0)
    with pytest.raises(InputError, match="level"):
        PITHistogramDisplay.from_pits(torch.rand(50, 1), level=2)
