"""Pictures of one row's prediction region."""

import pytest
import torch
from matplotlib import pyplot as plt

from prerank.errors import InputError, ShapeError
from prerank.recalibration import predictive_region
from prerank.report import PredictionDisplay
from truths import gaussian_mixture


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_draws_inside_and_outside_are_shown(dim):
    region = predictive_region(gaussian_mixture(6, dim=dim), 0.8, generator=0)
    shown = PredictionDisplay(region, 2, observation=torch.zeros(dim)).plot()
    assert abs(shown.inside.mean() - 0.8) < 4 * (0.16 / 500) ** 0.5
    assert f"{shown.inside.sum()} of 500 draws" in shown.caption
    assert ("(2 of 4 targets)" in shown.caption) == (dim == 4)
    labels = [text.get_text() for text in shown.ax_.get_legend().get_texts()]
    assert {"inside", "outside", "observation"} == set(labels)
    assert bool(shown.ax_.collections) == (dim == 2)  # the shaded area
    shown.figure_.canvas.draw()


def test_the_shaded_area_is_that_of_the_region_whatever_the_order_of_targets():
    law = gaussian_mixture(3, dim=2)
    region = predictive_region(law, 0.8, generator=0)
    for targets in ((0, 1), ("b", "a")):
        shown = PredictionDisplay(region, 1, targets=targets, names=["a", "b"]).plot()
        assert shown.ax_.get_xlabel() == ("a" if targets == (0, 1) else "b")
        [path] = shown.ax_.collections[0].get_paths()
        points = shown.samples[:, list(shown.targets)].numpy()
        filled = path.contains_points(points)
        assert (filled == shown.inside).mean() > 0.97  # but for draws near the edge of a grid


def test_bad_arguments_are_named():
    region = predictive_region(gaussian_mixture(6, dim=3), generator=0)
    for options, words in {
        (("row", 6),): "row must be below 6",
        (("targets", (0, 0)),): "one or two different targets",
        (("targets", ("a",)),): "'a', which is none of y0, y1, y2",
        (("targets", (3,)),): "targets must be at most 2",
    }.items():
        with pytest.raises(InputError, match=words):
            PredictionDisplay(region, **{"row": 0, **dict(options)})
    with pytest.raises(ShapeError, match="observation has shape"):
        PredictionDisplay(region, 0, observation=[1.0])
    with pytest.raises(ShapeError, match="2 names for 3 targets"):
        PredictionDisplay(region, 0, names=["a", "b"])
