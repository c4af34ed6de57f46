"""Calibration within groups of rows."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import MultivariateNormal

from prerank import diagnose
from prerank.diagnosis import diagnose_by
from prerank.errors import InputError, ShapeError

N = 600
SEASONS = ["summer", "winter", "spring"]
NAMES = [SEASONS[i % 3] for i in range(N)]


def forecast():
    return MultivariateNormal(torch.zeros(N, 2), torch.eye(2))


@pytest.fixture(scope="module")
def opposite():
    """Too high in summer, too low in winter, right in spring: nearly right over all rows."""
    bias = torch.tensor([0.6, -0.6, 0.0]).repeat(N // 3).unsqueeze(1)
    return bias + torch.randn(N, 2, generator=torch.Generator().manual_seed(1))


def test_faults_that_cancel_are_seen_within_groups(opposite):
    found = diagnose_by(forecast(), opposite, NAMES, preranks="marginal", generator=0)
    moods = {name: one.verdict().status for name, one in found.groups.items()}
    assert moods == {"summer": "bad", "winter": "bad", "spring": "good"}
    assert list(found.groups) == SEASONS


def test_the_whole_is_that_of_diagnose(opposite):
    found = diagnose_by(forecast(), opposite, NAMES, preranks="location+scale", generator=0)
    alone = diagnose(forecast(), opposite, preranks="location+scale", generator=0)
    columns = [name for name in alone.table.columns if name != "p_holm"]
    pd.testing.assert_frame_equal(found.overall.table[columns], alone.table[columns])


def test_a_group_is_diagnosed_as_if_alone(opposite):
    found = diagnose_by(forecast(), opposite, NAMES, preranks="marginal+location", generator=0)
    rows = torch.arange(N) % 3 == 1
    alone = diagnose(
        MultivariateNormal(torch.zeros(200, 2), torch.eye(2)),
        opposite[rows],
        preranks="marginal+location",
        generator=0,
    )
    columns = ["pce", "floor", "excess"]
    within = found.groups["winter"].table
    pd.testing.assert_frame_equal(within[columns], alone.table[columns])


def test_p_values_are_corrected_over_all_groups(opposite):
    found = diagnose_by(forecast(), opposite, NAMES, generator=0)
    rows = pd.concat([found.table, found.overall.table]).query("component == 'all'")
    assert rows.p_holm.min() == pytest.approx(rows.p_value.min() * len(rows))
    assert list(found.table.columns[:2]) == ["group", "n"]


def test_one_group_is_the_whole(opposite):
    found = diagnose_by(forecast(), opposite, ["all rows"] * N, generator=0)
    pd.testing.assert_frame_equal(found.groups["all rows"].table, found.overall.table)


def test_one_wrong_group_of_many_can_be_seen():
    # Over 20 groups and 7 pre-ranks, 2,000 replicates could not reject.
    generator = torch.Generator().manual_seed(0)
    groups = np.arange(4000) % 20
    y = torch.randn(4000, 3, generator=generator)
    y[groups == 7, 0] += 1.5
    dist = MultivariateNormal(torch.zeros(4000, 3), torch.eye(3))
    found = diagnose_by(dist, y, groups, generator=0)
    verdicts = {name: one.verdict() for name, one in found.groups.items()}
    assert [name for name, verdict in verdicts.items() if verdict.status == "bad"] == ["7"]
    assert "observed values higher than predicted in y0" in verdicts["7"].headline
    marginal = found.groups["7"].table.set_index(["prerank", "component"]).loc[("marginal", "all")]
    assert marginal.p_holm < 0.05
    assert marginal.note == ""


@pytest.mark.parametrize(
    "groups",
    [NAMES, tuple(NAMES), np.array(NAMES), pd.Series(NAMES), pd.Series(NAMES, dtype="category")],
    ids=["list", "tuple", "array", "series", "category"],
)
def test_names_come_in_many_forms(groups, opposite):
    found = diagnose_by(forecast(), opposite, groups, preranks="marginal", generator=0)
    assert list(found.groups) == SEASONS


def test_numbers_are_names_too(opposite):
    found = diagnose_by(forecast(), opposite, np.arange(N) % 2, preranks="marginal", generator=0)
    assert list(found.groups) == ["0", "1"]


@pytest.mark.parametrize(
    ("groups", "error", "words"),
    [
        (NAMES[:-1], ShapeError, "599"),
        ([*NAMES[:-1], None], InputError, "missing"),
        ([1.0] * (N - 1) + [float("nan")], InputError, "missing"),
    ],
)
def test_bad_groups_are_refused(groups, error, words, opposite):
    with pytest.raises(error, match=words):
        diagnose_by(forecast(), opposite, groups, preranks="marginal")


def test_too_many_groups_are_refused():
    dist = MultivariateNormal(torch.zeros(1200, 2), torch.eye(2))
    with pytest.raises(InputError, match="coarsely"):
        diagnose_by(dist, torch.zeros(1200, 2), range(1200), preranks="marginal")


def test_a_stack_has_no_groups():
    dist = MultivariateNormal(torch.zeros(2, 30, 2), torch.eye(2))
    with pytest.raises(ShapeError, match="one predictor"):
        diagnose_by(dist, torch.zeros(2, 30, 2), ["a"] * 30)
