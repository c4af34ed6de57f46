"""Figures of hand-made results show the values that were put into them."""

import itertools

import numpy as np
import pandas as pd
import pytest

from prerank.report.study_figures import (
    bars_figure,
    boxes_figure,
    datasets_figure,
    reliability_figure,
)

LEVELS = np.linspace(0, 1, 11)
PCES = {  # by variant and pre-rank, of two runs
    ("none", "marginal"): [0.2, 0.4],
    ("none", "hdr"): [0.6, 0.8],
    ("hdr", "marginal"): [0.3, 0.5],
    ("hdr", "hdr"): [0.1, 0.2],
    ("marginal+hdr", "marginal"): [0.02, 0.04],
    ("marginal+hdr", "hdr"): [0.04, 0.08],
}


def results(pces=PCES):
    """Rows of runs whose curves are powers of the level: as many as the variant has letters."""
    found = []
    for ((variant, prerank), values), seed in itertools.product(pces.items(), (0, 1)):
        row = {
            "dataset": "air",
            "variant": variant,
            "prerank": prerank,
            "seed": seed,
            "part": "test",
            "selected": True,
            "pce": values[seed],
            "nll": len(variant) + seed,
            "energy": 2.0 * len(variant) + seed,
            "curve": LEVELS ** len(variant),
        }
        found += [row, {**row, "part": "validation", "pce": 9.0, "curve": None}]
    return pd.DataFrame(found)


def labels(axis):
    return [text.get_text() for text in axis.get_xticklabels()]


def key(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


# Boxes


def boxes(axis):
    """Quartiles that boxes are drawn at, from left to right."""
    filled = [patch.get_path().vertices for patch in axis.patches]
    hollow = [line.get_xydata() for line in axis.lines if len(line.get_xydata()) == 5]
    ends = [(*corners.min(0), corners[:, 1].max()) for corners in map(np.asarray, filled + hollow)]
    return [(low, high) for _, low, high in sorted(ends)]


def test_boxes_show_the_error_of_the_pre_rank_that_is_penalised():
    figure = boxes_figure(results(), "air")
    assert key(figure) == ["before", "after"]
    assert labels(figure.axes[0]) == ["hdr", "marginal+hdr"]
    # Quartiles of two runs are a quarter of the way in. Of two pre-ranks, the mean is shown.
    expected = [(0.65, 0.75), (0.125, 0.175), (0.45, 0.55), (0.0375, 0.0525)]
    assert np.allclose(boxes(figure.axes[0]), expected)
    for axis, scale in zip(figure.axes[1:], (1, 2), strict=True):
        assert labels(axis) == ["none", "hdr", "marginal+hdr"]
        lower = [scale * n + 0.25 for n in (4, 3, 12)]  # letters of the variants
        assert np.allclose(boxes(axis), [(low, low + 0.5) for low in lower])


def test_boxes_of_unpenalised_runs_alone_have_no_errors_to_compare():
    rows = results()
    figure = boxes_figure(rows[rows.variant == "none"], "air")
    assert boxes(figure.axes[0]) == []
    assert key(figure) == []
    assert labels(figure.axes[1]) == ["none"]


def test_datasets_have_one_point_each():
    names = ["air", "bio", "wq"]
    before = pd.DataFrame({"dataset": [*names, "air"], "prerank": ["hdr"] * 3 + ["scale"]})
    before["mean"] = [0.1, 0.3, 0.5, 9.0]  # runs penalised by scale are not done
    after = pd.DataFrame({"dataset": names, "prerank": "hdr", "mean": [0.02, 0.04, 0.06]})
    scores = pd.DataFrame({"dataset": names * 2, "variant": ["none"] * 3 + ["hdr"] * 3})
    scores["nll"] = [0.0] * 3 + [1.0, 2.0, 3.0]
    scores["energy"] = [0.0] * 3 + [0.1, 0.2, 0.3]
    figure = datasets_figure(before, after, scores)
    assert key(figure) == ["before", "after"]
    assert labels(figure.axes[0]) == ["hdr"]
    assert np.allclose(boxes(figure.axes[0]), [(0.2, 0.4), (0.03, 0.05)])
    for axis, quartiles in zip(figure.axes[1:], ((1.5, 2.5), (0.15, 0.25)), strict=True):
        assert labels(axis) == ["none", "hdr"]
        assert np.allclose(boxes(axis), [(0, 0), quartiles])


# Bars


def bars(names, datasets, tallest):
    rows = [(dataset, name, tallest, 0.1) for dataset in datasets for name in names]
    return pd.DataFrame(rows, columns=["dataset", "prerank", "mean", "se"])


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("name", ["hdr", "dependency(12)"])
def test_no_key_covers_bars_or_their_names(count, name):
    datasets = [f"dataset {k}" for k in range(count)]
    before = bars([name, "location", "scale"], datasets, 1.0)
    after = bars([name], datasets, 0.9)
    figure = bars_figure(before, after, dict.fromkeys(datasets, 0.02))
    assert key(figure) == ["before", "after", "calibrated forecast"]
    for drawn in (figure, boxes_figure(results(), "air"), reliability_figure(results(), "air")):
        drawn.draw_without_rendering()
        (legend,) = drawn.legends
        box = legend.get_window_extent()
        panels = [axis.get_tightbbox() for axis in drawn.axes]
        assert panels
        assert not any(box.overlaps(panel) for panel in panels)
        assert box.width <= drawn.bbox.width


# Curves


@pytest.mark.parametrize(("company", "penalty"), [("", "hdr"), ("marginal+", "marginal+hdr")])
def test_curves_of_a_penalty_stand_above_those_of_the_margins(company, penalty):
    figure = reliability_figure(results(), "air", company)
    assert [axis.get_title() for axis in figure.axes] == ["hdr", "marginal"]
    assert key(figure) == ["before", "after"]
    for axis in figure.axes:
        assert axis.get_xlabel() == f"penalty: {penalty}"
        curves = [line for line in axis.lines if len(line.get_xdata()) == len(LEVELS)]
        powers = [4, 4, len(penalty), len(penalty)]  # two runs before, two after
        for line, power in zip(curves, powers, strict=True):
            np.testing.assert_allclose(line.get_ydata(), LEVELS**power)
            assert line.get_linestyle() == ("--" if power == 4 else "-")


def test_without_such_penalties_no_curves_are_drawn():
    rows = results()
    for company in ("", "marginal+"):
        figure = reliability_figure(rows[rows.variant == "none"], "air", company)
        assert figure.axes == []
        assert key(figure) == []
