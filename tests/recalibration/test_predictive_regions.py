"""Prediction regions: exact coverage, volumes with a known answer, and what they refuse."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import betabinom, chi2, kstest
from torch.distributions import MultivariateNormal

from prerank import Ensemble, GaussianMixture, PrerankError
from prerank.distributions import Cells, Rounded
from prerank.errors import NotApplicableError
from prerank.recalibration import predictive_interval, predictive_region
from prerank.recalibration.marginal import MarginTable
from prerank.recalibration.mixture_margins import MixtureMargins
from prerank.recalibration.proposals import Proposal
from prerank.recalibration.value_masses import ValueMasses
from recalibration.bases import BASES, stretched
from truths import MultivariateT, gaussian_mixture, multivariate_normal

CAL, TEST, REPLICATES = 39, 40, 40
LEVELS = (0.5, 0.9)
GRADES = (Cells.nearest([-1.0, 0.0, 1.0]), Cells.nearest([-2.0, 0.0, 0.5]))


def normal(rows, factor=1.0):
    factor = factor * torch.tensor([[1.0, 0.0], [0.8, 0.6]], dtype=torch.float64)
    return MultivariateNormal(torch.zeros(rows, 2, dtype=torch.float64), scale_tril=factor)


def grades(rows, factor=1.0):
    return Rounded(normal(rows, factor), GRADES)


def half_grades(rows, factor=1.0):
    return Rounded(normal(rows, factor), (GRADES[0], None))


def ensemble(rows, factor=1.0):
    return Ensemble(normal(rows, factor).sample((30,)))


def counts(forecast, truth, shape):
    """Numbers of test rows in regions of forecasts that are too narrow, by level."""
    found = {level: [] for level in LEVELS}
    for seed in range(REPLICATES):
        torch.manual_seed(seed)
        known, y = truth(CAL).sample(), truth(TEST).sample()
        region = predictive_region(
            forecast(TEST, 0.4),
            calibration=(forecast(CAL, 0.4), known),
            shape=shape,
            n_samples=50,
            generator=seed,
        )
        for level in LEVELS:
            found[level].append(int(region.at(level).contains(y).sum()))
    return found


@pytest.mark.parametrize(
    ("forecast", "truth", "shape"),
    [
        (normal, normal, "density"),
        (normal, normal, "box"),
        (ensemble, normal, "box"),
        (grades, grades, "density"),
        (half_grades, half_grades, "density"),
    ],
)
def test_counts_are_beta_binomial_whatever_the_forecast(forecast, truth, shape):
    """Exactly so, ties of discrete targets included: their randomised PITs are uniform."""
    noise = np.random.default_rng(0)
    for level, found in counts(forecast, truth, shape).items():
        rank = math.ceil((CAL + 1) * level)
        null = betabinom(TEST, rank, CAL + 1 - rank)
        z = null.cdf(np.array(found) - 1) + noise.random(REPLICATES) * null.pmf(found)
        assert kstest(z, "uniform").pvalue > 1e-3, (level, np.mean(found), null.mean())


def test_boxes_of_discrete_targets_cover_at_least_the_level():
    for level, found in counts(grades, grades, "box").items():
        rank = math.ceil((CAL + 1) * level)
        null = betabinom(TEST, rank, CAL + 1 - rank)
        assert np.mean(found) > null.mean() - 3 * null.std() / REPLICATES**0.5


def test_each_target_has_the_level_on_its_own():
    torch.manual_seed(0)
    y, known = normal(2000).sample(), normal(2000).sample()
    guess = normal(2000, 0.4)
    limits = predictive_interval(guess, 0.9, calibration=(guess, known))
    inside = (limits[..., 0] <= y) & (y <= limits[..., 1])
    # 2,000 rows seen through 2,000 others: a standard error of sqrt(.09 / 1000).
    assert (inside.double().mean(0) - 0.9).abs().amax() < 4 * 0.0095
    assert inside.all(-1).double().mean() < 0.88
    joint = predictive_interval(guess, 0.9, joint=True, calibration=(guess, known), generator=0)
    together = ((joint[..., 0] <= y) & (y <= joint[..., 1])).all(-1).double().mean()
    assert abs(float(together) - 0.9) < 4 * 0.0095


@pytest.mark.parametrize("shape", ["density", "box"])
@pytest.mark.parametrize("name", BASES)
def test_the_forecasts_own_regions_cover_what_a_true_forecast_promises(name, shape):
    torch.manual_seed(1)
    law = BASES[name](1000)
    region = predictive_region(law, 0.8, shape=shape, n_samples=200, generator=0)
    share = float(region.contains(law.sample()).double().mean())
    assert abs(share - 0.8) < 4 * (0.16 / 1000) ** 0.5


@pytest.mark.parametrize("dim", [1, 2, 6])
def test_the_volume_of_a_normal_region_is_that_of_an_ellipsoid(dim):
    law = multivariate_normal(100, dim=dim, seed=0)
    law = MultivariateNormal(law.loc.double(), scale_tril=law.scale_tril.double())
    region = predictive_region(law, 0.9, n_samples=500, generator=0)
    squared = 2 * (law.log_prob(law.mean) - region.threshold)
    log_det = law.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    unit = math.pi ** (dim / 2) / math.gamma(dim / 2 + 1)
    exact = unit * squared ** (dim / 2) * log_det.exp()
    ratio = region.volume(n_samples=1000, generator=1) / exact
    assert abs(float(ratio.mean()) - 1) < 4 * float(ratio.std()) / 10  # of 100 rows
    # Each edge is a quantile of 500 draws, whose level varies by less than .0134.
    level = chi2.cdf(squared.numpy(), dim)
    assert abs(level - 0.9).max() < 5 * 0.0134


def test_density_regions_are_sets_of_large_density():
    law = gaussian_mixture(300, dim=3, seed=0)
    region = predictive_region(law, 0.7, generator=0)
    torch.manual_seed(0)
    y = law.sample()
    margin = law.log_prob(y).double() - region.threshold
    clear = margin.abs() > 1e-6
    assert torch.equal(region.contains(y)[clear], (margin > 0)[clear])
    for low, high in ((0.3, 0.5), (0.5, 0.95)):  # nested
        inner, outer = region.at(low).contains(y), region.at(high).contains(y)
        assert not bool((inner & ~outer).any())
        assert bool((region.at(low).threshold > region.at(high).threshold).all())


@pytest.mark.parametrize("law", [normal(200), grades(200), half_grades(200)])
def test_boxes_are_what_lies_between_their_limits(law):
    torch.manual_seed(0)
    known = law.sample()
    region = predictive_region(law, 0.6, calibration=(law, known), shape="box", generator=0)
    y, limits = law.sample(), region.limits
    between = ((limits[..., 0] <= y) & (y <= limits[..., 1])).all(-1)
    assert torch.equal(region.contains(y), between)
    if isinstance(law, MultivariateNormal):
        torch.testing.assert_close(region.volume(), limits.diff(dim=-1)[..., 0].prod(-1))


def test_the_length_of_a_discrete_target_is_its_number_of_values():
    law = grades(40)
    values = torch.cartesian_prod(*(cells.values for cells in GRADES))
    for shape in ("density", "box"):
        region = predictive_region(law, 0.8, shape=shape, generator=0)
        inside = [int(region.contains_points(values, row).sum()) for row in range(40)]
        volume = region.volume(n_samples=4000, generator=0)
        # 4,000 points for each of 40 rows: an error of 1 % at most.
        assert abs(float(volume.mean()) / np.mean(inside) - 1) < (1e-6 if shape == "box" else 0.02)


def test_values_have_the_probability_of_their_cells():
    law = grades(1)
    margins = MarginTable.of(law.base, n_samples=64, generator=None)
    masses = ValueMasses(law, margins, Proposal(law.base, generator=None), n_points=4096)
    values = torch.cartesian_prod(*(cells.values for cells in GRADES))
    found = masses.log_prob(values.unsqueeze(1))[:, 0].exp()
    torch.manual_seed(0)
    draws = law.sample((200_000,))[:, 0]
    share = torch.stack([(draws == value).all(-1).double().mean() for value in values])
    # 200,000 draws have a standard error of .001 at most, and 4,096 even points less.
    assert (found - share).abs().amax() < 0.004
    assert abs(float(found.sum()) - 1) < 0.002


def test_values_that_are_hardly_possible_lie_outside():
    law, y = grades(30, 0.001), torch.tensor([[1.0, -2.0]], dtype=torch.float64).expand(30, 2)
    for impossible in (y, 7 * y):  # values that the target takes, and others
        for shape in ("density", "box"):
            known = predictive_region(law, 0.9, shape=shape, generator=0)
            assert not bool(known.contains(impossible).any())
            among = predictive_region(
                law, 0.9, calibration=(law, impossible), shape=shape, generator=0
            )
            assert bool(among.contains(law.sample()).all())


def test_one_row_is_asked_as_all_are():
    torch.manual_seed(0)
    mixture = gaussian_mixture(8, dim=2)
    table = MultivariateT(mixture.loc[:, 0], mixture.scale_tril[:, 0], 3.0)  # of no known family
    for law in (mixture, table, grades(8), half_grades(8)):
        for shape in ("density", "box"):
            region = predictive_region(law, 0.6, shape=shape, n_samples=60, generator=0)
            y = law.sample()
            alone = [bool(region.contains_points(y[row : row + 1], row)) for row in range(8)]
            assert alone == region.contains(y).tolist()


def test_mixture_margins_have_their_tails():
    law = gaussian_mixture(5, dim=2)
    margins = MixtureMargins(stretched(law, 1.0))
    for level in (-30.0, -3.0, 0.0, 2.0, 12.0, 30.0):
        w = torch.full((5, 2), level, dtype=torch.float64)
        torch.testing.assert_close(margins.score(margins.quantile(w)), w, rtol=1e-6, atol=1e-6)


def test_few_rows_say_what_level_they_are_good_for():
    law = normal(9)
    known = law.sample()
    region = predictive_region(law, 0.9, calibration=(law, known), generator=0)  # ten times .9 is 9
    assert region.n_calibration == 9
    with pytest.raises(PrerankError, match=r"9 rows: a level of 0\.95 needs at least 19"):
        region.at(0.95)


PAIR = normal(30), torch.zeros(30, 2)
REFUSED = {
    "shape must be 'density' or 'box'": {"shape": "ball"},
    "level must be below 1": {"level": 1.0},
    "level must be positive": {"level": 0},
    "n_samples must be at least": {"n_samples": 3},
    "calibration must be a pair": {"calibration": PAIR[0]},
    "calibration has 3 targets": {"calibration": (gaussian_mixture(30, dim=3), torch.zeros(30, 3))},
    "y has shape (29, 2)": {"calibration": (PAIR[0], PAIR[1][:29])},
    "NaN": {"calibration": (PAIR[0], PAIR[1] * math.nan)},
    "batch_shape (4, 30)": {"dist": normal(30).expand((4, 30))},
}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_arguments_are_named(words):
    options = {"dist": PAIR[0], **REFUSED[words]}
    with pytest.raises(PrerankError) as caught:
        predictive_region(**options)
    assert words in str(caught.value)


def test_samples_have_boxes_and_no_density():
    with pytest.raises(NotApplicableError, match="use shape='box'"):
        predictive_region(ensemble(5))
    with pytest.raises(NotApplicableError, match="no limits"):
        _ = predictive_region(normal(5)).limits
    with pytest.raises(PrerankError, match="row must be below 5"):
        predictive_region(normal(5)).contains_points(torch.zeros(1, 2), 5)


@pytest.mark.parametrize("scale", [0.05, 0.01])
@pytest.mark.parametrize("kind", ["members", "normal"])
def test_forecasts_that_are_far_too_narrow_cover_the_level(kind, scale):
    """Limits and region agree, or the limits are wider: they are infinite beyond all digits."""
    torch.manual_seed(0)
    y, known = torch.randn(1000, 3), torch.randn(1000, 3)

    def forecast():
        if kind == "members":
            return Ensemble(scale * torch.randn(10, 1000, 3))
        return MultivariateNormal(torch.zeros(1000, 3), scale_tril=scale * torch.eye(3))

    calibration = (forecast(), known)
    region = predictive_region(forecast(), 0.9, calibration=calibration, shape="box", generator=0)
    limits = region.limits
    inside = ((limits[..., 0] <= y) & (y <= limits[..., 1])).all(-1)
    # Beta-binomial: two sets of 1,000 rows have a standard deviation of .0134.
    assert float(region.contains(y).double().mean()) == pytest.approx(0.9, abs=0.054)
    assert float(inside.double().mean()) > 0.9 - 0.054
    if kind == "members":  # scores of normal forecasts end where the mass beyond is 0
        assert not bool(region.contains(y + 1e9).any())


def test_tiny_levels_have_tiny_regions():
    y = torch.randn(50, 2)
    dist = MultivariateNormal(torch.zeros(50, 2), torch.eye(2))
    region = predictive_region(dist, 1e-13, calibration=(dist, y), generator=0)
    assert float(region.contains(torch.randn(50, 2)).double().mean()) < 0.2


def test_points_of_other_types_and_shapes():
    dist = MultivariateNormal(torch.zeros(5, 2), torch.eye(2))
    region = predictive_region(dist, 0.9, generator=0)
    for points in (np.zeros((3, 2)), torch.zeros(3, 2, dtype=torch.float64)):
        assert region.contains_points(points, 0).tolist() == [True] * 3
    with pytest.raises(PrerankError, match="points must have shape"):
        region.contains_points(torch.zeros(3, 3), 0)


def test_seeds_repeat_and_precision_stays():
    law = GaussianMixture(
        torch.zeros(20, 1), torch.zeros(20, 1, 2), torch.eye(2).expand(20, 1, 2, 2)
    )
    first, again, other = (
        predictive_region(law, 0.9, generator=seed).threshold for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert "20 rows, level 0.9, from the forecast" in repr(predictive_region(law))
