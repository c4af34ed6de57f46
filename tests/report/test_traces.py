"""Selection traces: what they draw, what they say, and what they refuse."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from prerank.errors import InputTypeError
from prerank.report import SelectionDisplay
from prerank.training import Trial, choose_strength
from prerank.training.selection import Skipped

NOISE = np.array([-0.002, 0.0, 0.003])


def selection(excess, energy, *, budget=0.1, noise=NOISE):
    strengths = [0.0, 3.0, 10.0, 30.0, 100.0, 300.0][: len(excess)]
    trials = [
        Trial(strength, e + (1 + 0.1 * strength) * noise, s + 2 * (1 + strength / 100) * noise)
        for strength, e, s in zip(strengths, excess, energy, strict=True)
    ]
    return choose_strength(trials, budget=budget)


def good():
    return selection([0.08, 0.06, 0.02, 0.01], [1.0, 1.01, 1.03, 1.2])


def texts(shown):
    return [text.get_text() for text in shown.ax_.texts]


def test_points_are_the_trace():
    chosen = good()
    shown = SelectionDisplay(chosen)
    assert shown.plot() is shown
    assert shown.figure_ is shown.ax_.figure
    assert list(shown.points_) == [0, 3, 10, 30]
    for judgement in chosen.trace:
        point = shown.points_[judgement.strength]
        assert point.get_xdata()[0] == pytest.approx(100 * (judgement.energy_ratio - 1))
        assert point.get_ydata()[0] == judgement.excess
    assert texts(shown) == ["0", "3", "10", "30"]
    assert list(shown.budget_.get_xdata()) == pytest.approx([10, 10])
    assert any(list(line.get_ydata()) == [0, 0] for line in shown.ax_.lines)


def test_the_caption_names_strengths_that_were_not_tried_on_all_splits():
    skipped = Skipped(10.0, "does not improve the first run"), Skipped(300.0, "not tried")
    caption = SelectionDisplay(replace(good(), skipped=skipped)).caption
    assert caption == f"{good().reason}; not tried on all splits: 10 and 300."


def test_error_bars_are_standard_errors():
    chosen = good()
    shown = SelectionDisplay(chosen).plot()
    for judgement, container in zip(chosen.trace, shown.ax_.containers, strict=True):
        across, up = (bars.get_segments()[0] for bars in container[2])
        assert across[1, 0] - across[0, 0] == pytest.approx(200 * judgement.ratio_se)
        assert up[1, 1] - up[0, 1] == pytest.approx(2 * judgement.gain_se)


def test_the_chosen_point_differs_in_shape():
    shown = SelectionDisplay(good()).plot()
    shapes = {strength: point.get_marker() for strength, point in shown.points_.items()}
    assert shapes == {0: "s", 3: "o", 10: "*", 30: "o"}
    assert shown.points_[30].get_markerfacecolor() == "white"  # over the budget
    assert shown.points_[3].get_markerfacecolor() != "white"
    legend = [text.get_text() for text in shown.ax_.get_legend().get_texts()]
    assert legend == ["budget (10 %)", "unpenalised", "qualifies", "chosen", "does not qualify"]
    assert shown.caption == good().reason + "."


def test_none_qualifies():
    chosen = selection([0.02, 0.021, 0.03], [1.0, 1.01, 1.5])
    assert chosen.strength is None
    shown = SelectionDisplay(chosen).plot()
    assert "*" not in {point.get_marker() for point in shown.points_.values()}
    assert shown.caption == "no strength improves calibration beyond noise within the budget."


@pytest.mark.filterwarnings("error")
def test_what_is_not_finite_is_named_and_not_drawn():
    chosen = selection(
        [0.08, np.nan, 0.03, 0.02, np.inf, 0.01], [1.0, 1.0, np.inf, 1.02, np.nan, 1.03]
    )
    shown = SelectionDisplay(chosen).plot()
    assert list(shown.points_) == [0, 30, 300]
    assert shown.caption.startswith(
        "strength 30 is the weakest within one standard error of the lowest excess"
    )
    assert shown.caption.endswith("; no point where results are not finite: 3, 10 and 100.")
    shown.figure_.canvas.draw()


def test_errors_that_are_not_finite_have_no_bars():
    chosen = good()
    trace = tuple(replace(one, gain_se=np.nan, ratio_se=np.inf) for one in chosen.trace)
    shown = SelectionDisplay(replace(chosen, trace=trace)).plot()
    assert len(shown.points_) == 4
    assert np.isfinite(shown.ax_.get_xlim()).all()
    assert np.isfinite(shown.ax_.get_ylim()).all()


def test_what_costs_far_too_much_is_drawn_at_the_edge():
    chosen = selection([0.08, 0.06, 0.01], [1.0, 1.01, 41.0], noise=np.zeros(2))
    shown = SelectionDisplay(chosen).plot()
    assert shown.ax_.get_xlim()[1] < 50
    assert shown.points_[10].get_marker() == ">"
    assert texts(shown)[-1] == "10 (+4000 %)"
    wide = SelectionDisplay(selection([0.08, 0.06, 0.01], [1.0, 1.01, 3.0], budget=1.0)).plot()
    assert wide.points_[10].get_marker() == "o"


@pytest.mark.parametrize("seed", range(5))
def test_writings_lie_beside_each_other(seed):
    rng = np.random.default_rng(seed)
    excess, energy = 0.02 + 0.02 * rng.random(6), 1 + 0.05 * rng.random(6)
    shown = SelectionDisplay(selection(excess, energy)).plot()
    shown.figure_.canvas.draw()
    boxes = [text.get_window_extent().shrunk(0.8, 0.6) for text in shown.ax_.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.parametrize("budget", [0.0, 0.1])
def test_a_single_pair_of_runs(budget):
    chosen = selection([0.05, 0.01], [1.0, 0.99], budget=budget, noise=np.zeros(1))
    shown = SelectionDisplay(chosen).plot()
    shown.figure_.canvas.draw()
    assert chosen.strength == 3
    assert shown.points_[3].get_marker() == "*"


def test_plot_takes_axes():
    ax = Figure().subplots()
    shown = SelectionDisplay(good()).plot(ax, legend=False)
    assert shown.ax_ is ax
    assert ax.get_legend() is None
    assert plt.get_fignums() == []  # no figure of its own


@pytest.mark.parametrize("wrong", [None, "auto", good().table, good().trace])
def test_other_things_are_refused(wrong):
    with pytest.raises(InputTypeError, match=f"selection must be .* got {type(wrong).__name__}"):
        SelectionDisplay(wrong)
