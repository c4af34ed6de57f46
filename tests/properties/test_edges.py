"""Numbers at the edge of their type: the results of ordinary numbers, or an error that says why."""

from itertools import product

import numpy as np
import pytest
import torch
from torch.distributions import (
    AffineTransform,
    Independent,
    MultivariateNormal,
    Normal,
    StudentT,
    TransformedDistribution,
)

from prerank import (
    CalibrationPenalty,
    Ensemble,
    GaussianMixture,
    Monitor,
    calibrate,
    compare,
    crps,
    diagnose,
    diagnose_where,
    energy_score,
    nll,
    pce,
    pit,
    variogram_score,
)
from prerank.errors import InputError
from properties.cases import DTYPES
from truths import gaussian_mixture, independent_normal, multivariate_normal, skewness

ROWS, DIM, SAMPLES = 60, 4, 40
PRERANKS = ["marginal", "location", "scale", "dependency", "pca", "pca(0.8)", "hdr", "copula"]
PRERANKS += ["multivariate_rank", "average_rank", "band_depth", "energy_score"]
# Powers of two near 1e-30, 1e-20, 1e20 and 1e30, and farther ones in float64.
EDGES = {
    torch.float32: [2.0**-100, 2.0**-66, 2.0**66, 2.0**100],
    torch.float64: [2.0**-400, 2.0**-100, 2.0**100, 2.0**460],
}


def moved(kind, dtype, unit=1.0, offset=0.0, rows=ROWS):
    """A calibrated forecast in other units and elsewhere, and its observations."""

    def place(loc):
        return (unit * (loc + offset)).to(dtype)

    def width(scale):
        return (unit * scale).to(dtype)

    mixture = gaussian_mixture(rows, dim=DIM, seed=1)
    normal = multivariate_normal(rows, dim=DIM, seed=1)
    base = independent_normal(rows, dim=DIM, seed=1).base_dist
    laws = {
        "mixture": lambda: GaussianMixture(
            mixture.logits.to(dtype), place(mixture.loc), width(mixture.scale_tril)
        ),
        "normal": lambda: MultivariateNormal(
            place(normal.loc), scale_tril=width(normal.scale_tril), validate_args=False
        ),
        "independent": lambda: Independent(Normal(place(base.loc), width(base.scale)), 1),
        "student": lambda: Independent(
            StudentT(torch.tensor(9.0, dtype=dtype), place(base.loc), width(base.scale)), 1
        ),
        "members": lambda: Ensemble(place(mixture.sample((SAMPLES,), generator=3))),
        "weighted": lambda: Ensemble(
            place(mixture.sample((SAMPLES,), generator=3)), torch.linspace(1, 2, SAMPLES)
        ),
    }
    truths = {"normal": normal, "independent": base, "student": base}
    return laws[kind](), place(truths.get(kind, mixture).sample())


FAMILIES = ["mixture", "normal", "independent", "student", "members", "weighted"]


def applies(prerank, kind):
    return not (prerank == "hdr" and kind in ("members", "weighted"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", FAMILIES)
def test_pits(kind, dtype):
    for prerank in PRERANKS:
        if not applies(prerank, kind):
            continue
        torch.manual_seed(0)
        expected = pit(*moved(kind, dtype), prerank, generator=0)
        for unit in EDGES[dtype]:
            torch.manual_seed(0)
            found = pit(*moved(kind, dtype, unit), prerank, generator=0)
            if prerank.startswith("pca"):
                if kind != "student":  # whose components are then those of its samples
                    assert found.shape == expected.shape
                    # A solver rescales its matrices, which may exchange some neighbours.
                    assert float((found - expected).abs().mean()) < 1e-3, (prerank, unit)
            elif prerank == "hdr":  # sums of logarithms round
                assert float((found - expected).abs().mean()) < 1e-3, unit
            else:
                assert torch.equal(found, expected), (prerank, unit)
            # The largest of 5 components and 100 tests by chance: .31/sqrt(60) is their mean.
            assert float(pce(found).max()) < 0.14, (prerank, unit)


SMOOTH = [p for p in PRERANKS if p not in ("average_rank", "band_depth", "multivariate_rank")]


def total(y):
    return y.sum(-1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_penalties_and_their_gradients(dtype):
    def measured(prerank, unit):
        torch.manual_seed(0)
        law, y = moved("mixture", dtype, unit)
        parameters = [p.clone().requires_grad_() for p in (law.logits, law.loc, law.scale_tril)]
        value = CalibrationPenalty(prerank, n_samples=20)(
            GaussianMixture(*parameters), y, generator=0
        )
        slopes = torch.autograd.grad(value, parameters, materialize_grads=True)
        return value.detach(), slopes[0], unit * slopes[1], unit * slopes[2]

    for prerank in [*SMOOTH, total]:
        expected = measured(prerank, 1.0)
        for unit in EDGES[dtype]:
            for found, wanted in zip(measured(prerank, unit), expected, strict=True):
                # tau multiplies the rounding of eigenvectors and of log-densities by 100.
                bound = 1e7 * torch.finfo(dtype).eps * float(wanted.abs().max())
                torch.testing.assert_close(found, wanted, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", FAMILIES)
def test_scores_and_their_gradients(kind, dtype):
    scores = {"energy": lambda d, y: energy_score(d, y, generator=0), "crps": crps, "nll": nll}
    for name, score in scores.items():
        if name == "nll" and not applies("hdr", kind):
            continue
        for unit in EDGES[dtype]:
            found = []
            for scale in (1.0, unit):
                torch.manual_seed(0)
                law, y = moved(kind, dtype, scale)
                y = y.requires_grad_()
                value = score(law, y) if name != "crps" else crps(law, y, generator=0)
                (slope,) = torch.autograd.grad(value.sum(), y)
                assert bool(value.isfinite().all() & slope.isfinite().all()), (name, unit)
                power = value / scale if name != "nll" else value - DIM * np.log(scale)
                found += [power.detach(), slope if name != "nll" else slope * scale]
            rounding = (
                8 * torch.finfo(dtype).eps * (DIM * abs(np.log(unit)) if name == "nll" else 1)
            )
            for one, two in zip(found[2:], found[:2], strict=True):
                torch.testing.assert_close(one, two, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("kind", ["mixture", "members"])
@pytest.mark.parametrize("unit", EDGES[torch.float32][::3])
def test_diagnoses_are_the_same_and_heads_refused(kind, unit):
    torch.manual_seed(0)
    before = moved(kind, torch.float32, rows=100)
    torch.manual_seed(0)
    after = moved(kind, torch.float32, unit, rows=100)
    expected, found = (diagnose(*pair, n_null=50, generator=0) for pair in (before, after))
    assert found.verdict().headline == expected.verdict().headline
    assert float((found.table.pce - expected.table.pce).abs().max()) < 0.005
    with pytest.raises(InputError, match=r"multiply both by a number such as \de[+-]\d\d"):
        calibrate(*after)


@pytest.mark.parametrize("unit", [2.0**-990, 2.0**-530, 2.0**530, 2.0**990])
@pytest.mark.parametrize("dim", [1, 3])
def test_crps_is_homogeneous_up_to_the_edges_of_float64(dim, unit):
    torch.manual_seed(0)
    y, logits = torch.randn(20, dim, dtype=torch.float64), torch.randn(20, 2, dtype=torch.float64)
    loc = torch.randn(20, 2, dim, dtype=torch.float64)
    root = torch.eye(dim, dtype=torch.float64) + 0.3 * torch.ones(dim, dim).double().tril(-1)
    root = root.expand(20, 2, dim, dim)

    def scores(at):
        leaf = (at * loc).requires_grad_()
        mixture = GaussianMixture(logits, leaf, at * root)
        normal = MultivariateNormal(leaf[:, 0], scale_tril=at * root[:, 0])
        values = [crps(mixture, at * y), crps(normal, at * y)]
        slopes = torch.autograd.grad(sum(value.sum() for value in values), leaf)
        return [*(value.detach() / at for value in values), *slopes]

    # Powers of two change no digit; a sum may round differently.
    torch.testing.assert_close(scores(unit), scores(1.0), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("width", [1e-5, 1e-10, 1e-20, 1e-30])
def test_the_gradient_beside_a_component_without_digits_is_finite(width):
    torch.manual_seed(0)
    eye = torch.eye(3)
    leaves = [torch.zeros(40, 2), torch.zeros(40, 2, 3), torch.stack([eye, width * eye])]
    leaves = [leaves[0], leaves[1], leaves[2].expand(40, 2, 3, 3).clone()]
    dist = GaussianMixture(*[leaf.requires_grad_() for leaf in leaves])
    y = torch.randn(40, 3)
    y[::2] *= width
    CalibrationPenalty("dependency", n_samples=30)(dist, y, generator=0).backward()
    assert all(bool(leaf.grad.isfinite().all()) for leaf in leaves)


# What looks at PITs, for forecasts of one location.
LOOKS = {
    "pit": lambda dist, y: pit(dist, y, "marginal", generator=0),
    "ranks": lambda dist, y: pit(dist, y, "scale", generator=0),
    "diagnose": lambda dist, y: diagnose(dist, y, n_null=50, generator=0),
    "penalty": lambda dist, y: CalibrationPenalty("marginal+copula")(dist, y, generator=0),
    "monitor": lambda dist, y: Monitor().update(dist, y),
    "compare": lambda dist, y: compare(dist, dist, y),
    "where": lambda dist, y: diagnose_where(dist, y, torch.arange(len(y))[:, None].double()),
    "energy": lambda dist, y: energy_score(dist, y, generator=0),
    "variogram": lambda dist, y: variogram_score(dist, y, generator=0),
    "crps": lambda dist, y: crps(dist, y, generator=0),
    "nll": nll,
    "head": calibrate,
}


# Not refused, as in training, and refused for another reason.
EXEMPT = {("penalty", "normal"), ("nll", "members")} | {
    (look, "weighted") for look in ("monitor", "compare", "where", "nll")
}


@pytest.mark.parametrize(("look", "kind"), sorted(set(product(LOOKS, FAMILIES)) - EXEMPT))
@pytest.mark.parametrize("offset", [2.0**24, 1e8, 1e9])  # where all samples are equal, at last
def test_forecasts_finer_than_their_precision(offset, kind, look):
    dist, y = moved(kind, torch.float32, offset=offset, rows=200)
    with pytest.raises(InputError, match=r"finer than the precision of float32 .* in float64"):
        LOOKS[look](dist, y)


@pytest.mark.parametrize("value", [0.0, 5.0, 1e6])
def test_forecasts_without_a_spread_are_allowed(value):
    """Such as no rain, for certain: samples that are all equal are no matter of precision."""
    members = torch.full((SAMPLES, 200, 2), value)
    y = torch.full((200, 2), value)
    y[:20] += torch.arange(1.0, 41.0).reshape(20, 2)
    z = pit(Ensemble(members), y, "marginal", generator=0)
    assert float(pce(z).max()) < 0.1  # ranks that tie are uniform; a tenth of the rows lies above
    assert bool(energy_score(Ensemble(members), y).isfinite().all())


@pytest.mark.parametrize("unit", [2.0**-100, 2.0**100])
def test_heads_of_any_family_are_refused_at_the_edges(unit):
    """Also of one that does not tell its size: its draws do."""
    kind = AffineTransform(torch.zeros(2), torch.ones(2), event_dim=1)
    base = Independent(Normal(torch.zeros(100, 2), torch.full((100, 2), unit)), 1)
    law = TransformedDistribution(base, [kind], validate_args=False)
    student = Independent(StudentT(5.0, torch.zeros(100, 2), torch.full((100, 2), unit)), 1)
    for dist in (law, student):
        with pytest.raises(InputError, match=r"multiply both by a number such as \de[+-]\d\d"):
            calibrate(dist, unit * torch.randn(100, 2))


def test_the_factor_is_that_of_the_rows_that_need_one():
    y = torch.randn(100, 2)
    y[7] *= 1e30
    with pytest.raises(
        InputError, match=r"in 1 of 100 rows: multiply both by a number such as 1e-1"
    ):
        calibrate(Ensemble(y.abs().amax(-1)[:, None] * torch.randn(SAMPLES, 100, 2)), y)


@pytest.mark.parametrize(("dtype", "offsets"), [(DTYPES[0], [1e4, 1e5]), (DTYPES[1], [1e6, 1e9])])
@pytest.mark.parametrize("kind", FAMILIES)
def test_offsets_within_the_precision(kind, dtype, offsets):
    for prerank in PRERANKS:
        if not applies(prerank, kind):
            continue
        torch.manual_seed(0)
        expected = pit(*moved(kind, dtype), prerank, generator=0)
        for offset in offsets:
            torch.manual_seed(0)
            found = pit(*moved(kind, dtype, offset=offset), prerank, generator=0)
            # Neighbours are 2^-7 apart at 1e5 in float32, half of the members' own distances: some
            # tie, and the copula has a tie wherever one target has.
            assert float((found - expected).abs().mean()) < 0.02, (prerank, offset)


def test_some_rows_finer_than_their_precision_make_a_remark():
    torch.manual_seed(0)
    dist, y = moved("normal", torch.float32, offset=1.0)
    far = torch.where(torch.arange(ROWS) < 5, 1e9, 0.0)[:, None]
    shifted = MultivariateNormal(dist.loc + far, scale_tril=dist.scale_tril)
    found = diagnose(shifted, y + far, n_null=50, generator=0)
    assert any("in 8.3% of the rows" in remark for remark in found.remarks)


def test_numbers_too_large_for_their_type():
    huge = Independent(Normal(torch.zeros(20, 2), torch.full((20, 2), torch.inf)), 1)
    with pytest.raises(InputError, match=r"too large for torch\.float32"):
        pit(huge, torch.zeros(20, 2), "scale", generator=0)


def test_values_of_a_function_may_have_any_size():
    torch.manual_seed(0)
    law, y = moved("mixture", torch.float64)
    expected = CalibrationPenalty(skewness)(law, y, generator=0)
    tiny = CalibrationPenalty(lambda y: 2.0**-900 * skewness(y))(law, y, generator=0)
    assert torch.equal(tiny, expected)


@pytest.mark.parametrize("prerank", ["marginal", "location", "pca"])
def test_a_fill_value_among_the_observations_leaves_a_gradient(prerank):
    """Its CDF is 1, and the gradient of that is 0: not 0 times infinity."""
    log_scale = torch.zeros((), requires_grad=True)
    y = torch.randn(64, 2)
    y[3, 1] = 9.96921e36  # of netCDF
    dist = MultivariateNormal(torch.zeros(64, 2), scale_tril=torch.eye(2) * log_scale.exp())
    CalibrationPenalty(prerank)(dist, y, generator=0).backward()
    assert bool(log_scale.grad.isfinite())
    assert float(log_scale.grad) != 0
