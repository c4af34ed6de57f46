"""Corner plots: what they draw, what they say of the observation, and what they refuse."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from torch.distributions import Independent, MultivariateNormal, Poisson

from prerank import Ensemble, GaussianMixture
from prerank.errors import InputError, InputTypeError, PrerankError, ShapeError
from prerank.report import CornerDisplay, corners
from prerank.report.positions import inner_share, outer_margins, position_words


def points(size=200, dim=3, seed=0):
    return torch.randn(size, dim, generator=torch.Generator().manual_seed(seed))


def drawn_points(ax):
    return max(ax.lines, key=lambda line: len(line.get_xdata())).get_xydata()


@pytest.mark.parametrize("targets", [1, 2, 5, 12])
def test_panels_show_pairs_and_margins(targets):
    """Of eight targets at most, and no writing lies upon another."""
    scale = torch.logspace(-3, 5, targets)
    samples, observation = points(dim=targets) * scale, scale * torch.arange(1.0, targets + 1) / 10
    names = [f"temperature_at_{d}" for d in range(targets)]
    shown = CornerDisplay(samples, observation, names, label="row 3")
    dim = min(targets, 8)
    assert shown.plot() is shown
    assert shown.figure_ is shown.ax_.figure
    assert shown.axes_.shape == (dim, dim)
    for i, j in np.ndindex(dim, dim):
        ax = shown.axes_[i, j]
        if j > i:
            assert ax is None
            continue
        crossing = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 2]
        assert crossing[0] == pytest.approx(float(observation[j]))
        if i == j:
            assert len(ax.patches) == 1  # one outline
        else:
            np.testing.assert_allclose(drawn_points(ax), samples[:, [j, i]])
        assert ax.get_xlabel() == (names[j] if i == dim - 1 else "")
        assert ax.get_ylabel() == (names[i] if j == 0 < i else "")
    shown.figure_.canvas.draw()
    writings = [ax.xaxis.label for ax in shown.axes_[-1]]
    writings += [ax.yaxis.label for ax in shown.axes_[1:, 0]]
    writings += [text for ax in shown.axes_[:, 0] for text in ax.get_yticklabels()]
    writings += shown.ax_.get_legend().get_texts()
    boxes = [text.get_window_extent() for text in writings if text.get_text()]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_only_so_many_targets_are_drawn():
    shown = CornerDisplay(points(dim=12), torch.zeros(12))
    assert shown.caption.endswith(" (the first 8 of 12 are shown).")
    less = CornerDisplay(points(), torch.zeros(3), max_targets=1).plot()
    assert less.axes_.shape == (1, 1)
    assert "first 1 of 3" in less.caption
    far = torch.zeros(12)
    far[11] = 9
    assert "y11 (higher than predicted)" in CornerDisplay(points(dim=12), far).caption


def test_plot_takes_axes():
    for dim in (1, 3):
        ax = Figure().subplots(1, 2)[0]
        shown = CornerDisplay(points(dim=dim), torch.zeros(dim)).plot(ax, legend=False)
        assert shown.ax_ is ax
        assert ax.get_legend() is None
    assert plt.get_fignums() == []  # no figure of its own


def test_degenerate_samples_are_drawn():
    samples = torch.ones(50, 3)
    samples[:, 1] = torch.arange(50.0) % 2
    shown = CornerDisplay(samples, [1.0, 0.0, 4.0], ["a $", "b$^", "c"]).plot()
    shown.figure_.canvas.draw()
    assert shown.caption == (
        "observation in the outer 5 % of the margin of c (higher than predicted), and farther out "
        "than every sample, all targets together."
    )


def test_large_ensembles_are_thinned():
    shown = CornerDisplay(points(9000, 2), [0.0, 0.0]).plot()
    assert 1000 < len(drawn_points(shown.axes_[1, 0])) <= 2000
    assert "% of the samples" in shown.caption


# From predictions


def test_samples_are_of_the_row_that_was_asked_for():
    loc = 100.0 * torch.arange(20.0).unsqueeze(-1) + torch.tensor([0.0, 10.0])
    logits, scale = torch.zeros(20, 2), torch.eye(2).expand(20, 2, 2, 2)
    y = pd.DataFrame(loc.numpy(), columns=["rain", "wind"], index=range(50, 70))
    for dist in (
        MultivariateNormal(loc, torch.eye(2)),
        GaussianMixture(logits, loc.unsqueeze(1).expand(20, 2, 2), scale),
        Independent(Poisson(loc + 1), 1),
        Ensemble(loc + points(40, 2).unsqueeze(1)),
    ):
        shown = CornerDisplay.from_predictions(dist, y, 7, n_samples=50, generator=0)
        assert shown.names == ("rain", "wind")
        assert shown.label == "row 7"
        assert shown.caption.startswith("row 7: observation in the inner 95 %")
        np.testing.assert_array_equal(shown.observation, [700, 710])
        np.testing.assert_allclose(shown.samples.mean(0), [700, 710], atol=20)
        assert len(shown.samples) == (40 if isinstance(dist, Ensemble) else 50)
        again = CornerDisplay.from_predictions(dist, y, 7, n_samples=50, generator=0)
        np.testing.assert_array_equal(shown.samples, again.samples)


def test_draws_in_blocks(monkeypatch):
    dist = MultivariateNormal(torch.zeros(10, 2), torch.eye(2))
    monkeypatch.setattr(corners, "_CHUNK_VALUES", 60)
    shown = CornerDisplay.from_predictions(dist, dist.mean, 9, n_samples=100, generator=1)
    assert shown.samples.shape == (100, 2)
    assert len(np.unique(shown.samples)) == 200
    assert np.abs(shown.samples.mean(0)).max() < 0.5


def test_weighted_ensembles_show_members_by_their_weights():
    members = torch.tensor([0.0, 1.0, 2.0]).reshape(3, 1, 1).expand(3, 4, 2)
    dist = Ensemble(members, torch.tensor([0.0, 0.2, 0.8]))
    shown = CornerDisplay.from_predictions(dist, torch.zeros(4, 2), 2, generator=0)
    assert shown.samples.shape == (500, 2)
    assert (shown.samples > 0).all()
    assert (shown.samples == 2).mean() == pytest.approx(0.8, abs=0.06)


def test_one_row_and_one_target():
    dist = MultivariateNormal(torch.zeros(1, 1), torch.eye(1))
    shown = CornerDisplay.from_predictions(dist, [[4.0]], 0, generator=0)
    assert shown.caption == (
        "row 0: observation in the outer 5 % of the margin of y0 (higher than predicted)."
    )


# Positions


def test_words():
    samples = points(500, 4).numpy()
    names = ["a", "b", "c", "d"]
    found = position_words(samples, np.array([-4.0, 0.0, 4.0, -4.0]), names)
    assert found == (
        "observation in the outer 5 % of the margins of a and d (lower than predicted) and of the "
        "margin of c (higher than predicted), and farther out than every sample, all targets "
        "together"
    )
    assert "too few" in position_words(samples[:38], samples[40], names)
    assert "together" not in position_words(samples[:39], samples[40], names)
    assert "inner 95 % of the margin" in position_words(samples[:, :1], np.zeros(1), ["a"])


def test_a_broken_dependence_is_seen():
    samples = points(500, 2).numpy() @ np.array([[1.0, 0.95], [0.0, 0.31]])
    assert not outer_margins(samples, np.array([1.2, -1.2])).any()
    assert inner_share(samples, np.array([1.2, -1.2])) == 1
    assert inner_share(samples, np.array([1.2, 1.2])) < 0.9


def test_positions_of_right_predictions_are_uniform():
    pool = np.random.default_rng(0).standard_t(4, size=(400, 100, 3)).cumsum(-1)
    outer = np.mean([outer_margins(row[1:], row[0]) != 0 for row in pool])
    assert abs(outer - 0.04) < 3 * np.sqrt(0.04 * 0.96 / 400)  # 2 * 2 of 100 ranks
    shares = np.array([inner_share(row[1:], row[0]) for row in pool])
    for level in (0.25, 0.5, 0.9):
        assert abs((shares < level).mean() - level) < 3 * np.sqrt(level * (1 - level) / 400) + 0.01


# What is refused

BAD = [
    ((torch.zeros(5), [0.0]), ShapeError, r"samples must have shape \(S, D\).*\(5,\)"),
    ((torch.zeros(1, 2), [0.0, 0.0]), ShapeError, r"at least two samples.*\(1, 2\)"),
    ((torch.zeros(4, 5, 2), [0.0, 0.0]), ShapeError, r"\(4, 5, 2\)"),
    ((torch.zeros(5, 0), []), ShapeError, r"\(5, 0\)"),
    ((torch.zeros(5, 2), [0.0]), ShapeError, r"observation has shape \(1,\).*must be \(2,\)"),
    ((torch.zeros(5, 1), [float("nan")]), InputError, "observation holds 1 NaN"),
    ((torch.full((5, 1), torch.inf), [0.0]), InputError, "samples holds 5 NaN or infinite"),
    ((torch.zeros(5, 2), [0.0, 0.0], ["a"]), ShapeError, "1 names for 2 targets"),
    (("text", [0.0]), PrerankError, "samples must"),
]


@pytest.mark.parametrize(("arguments", "error", "words"), BAD)
def test_bad_arguments_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        CornerDisplay(*arguments)


def test_bad_predictions_are_refused():
    dist = MultivariateNormal(torch.zeros(4, 2), torch.eye(2))
    y = torch.zeros(4, 2)
    for row, error, words in (
        (4, InputError, "row must be below 4"),
        (-1, InputError, "row must be at least 0"),
        (1.0, InputTypeError, "row must be an int"),
    ):
        with pytest.raises(error, match=words):
            CornerDisplay.from_predictions(dist, y, row)
    with pytest.raises(InputError, match="n_samples"):
        CornerDisplay.from_predictions(dist, y, 0, n_samples=1)
    with pytest.raises(InputError, match="max_targets"):
        CornerDisplay.from_predictions(dist, y, 0, max_targets=0)
    with pytest.raises(ShapeError, match="one predictor"):
        CornerDisplay.from_predictions(dist.expand((3, 4)), y, 0)
    with pytest.raises(ShapeError, match=r"y has shape \(3, 2\)"):
        CornerDisplay.from_predictions(dist, y[:3], 0)
    assert plt.get_fignums() == []
