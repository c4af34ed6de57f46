"""Numbers at the edge of their type: the results of ordinary numbers, or an error that says why."""

from itertools import product

import numpy as np
import pytest
import torch
from torch.distributions import (
    AffineTransform,
    Independent,
    LowRankMultivariateNormal,
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
from prerank.distributions import affine
from prerank.errors import InputError
from properties.cases import DTYPES
from truths import gaussian_mixture, independent_normal, multivariate_normal, skewness

ROWS, DIM, SAMPLES = 60, 4, 40
PRERANKS = ["marginal", "location", "scale", "dependency", "pca", "pca(0.8)", "hdr", "copula"]
PRERANKS += ["multivariate_rank", "average_rank", "band_depth", "energy_score"]
# Powers of two near 1e-30, 1e-20, 1e20 and 1e30, and near 1e-300, 1e-160, 1e160 and 1e300.
EDGES = {
    torch.float32: [2.0**-100, 2.0**-66, 2.0**66, 2.0**100],
    torch.float64: [2.0**-997, 2.0**-532, 2.0**532, 2.0**997],
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


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_draws(dtype):
    """Densities, which the gradient divides by, are as small as the units are large."""

    def measured(unit):
        torch.manual_seed(0)
        law, y = moved("mixture", dtype, unit)
        parameters = [p.clone().requires_grad_() for p in (law.logits, law.loc, law.scale_tril)]
        score = energy_score(GaussianMixture(*parameters), y, generator=0) / unit
        slopes = torch.autograd.grad(score.sum(), parameters)
        return slopes[0], unit * slopes[1], unit * slopes[2]

    expected = measured(1.0)
    for unit in EDGES[dtype]:
        for found, wanted in zip(measured(unit), expected, strict=True):
            bound = 1e3 * torch.finfo(dtype).eps * float(wanted.abs().max())
            torch.testing.assert_close(found, wanted, rtol=0, atol=bound)


# Of targets side by side: ratios of 1e40 and of 1e60 in float32.
UNEVEN = {
    torch.float32: [(2.0**-66, 1.0, 2.0**66, 1.0), (2.0**-100, 1.0, 2.0**100, 1.0)],
    torch.float64: [(2.0**-532, 1.0, 2.0**532, 1.0), (2.0**-997, 1.0, 2.0**997, 1.0)],
}
UNITLESS = ["marginal", "hdr", "copula", "average_rank", "band_depth", "sample_density"]
FAR = "targets whose sizes differ by more than 1e.* cannot hold together: rescale the targets"


def uneven(kind, dtype, units):
    torch.manual_seed(0)
    law, y = moved(kind, dtype)
    scale = torch.tensor(units, dtype=dtype)
    return affine(law, torch.zeros_like(scale), scale), scale * y


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["mixture", "normal", "independent", "members"])
def test_tiny_and_huge_targets_in_one_row(kind, dtype):
    even = uneven(kind, dtype, (1.0,) * DIM)
    for prerank in UNITLESS:
        if not applies(prerank, kind):
            continue
        expected = pit(*even, prerank, generator=0)
        for units in UNEVEN[dtype]:
            found = pit(*uneven(kind, dtype, units), prerank, generator=0)
            # Sums of logarithms, and of squares of whitened points, round.
            bound = 1e-3 if prerank in ("hdr", "sample_density") else 0.0
            assert float((found - expected).abs().mean()) <= bound, (prerank, units)
    for units in UNEVEN[dtype]:
        law, y = uneven(kind, dtype, units)
        scale = torch.tensor(units, dtype=dtype)
        rounding = 100 * torch.finfo(dtype).eps
        torch.testing.assert_close(crps(law, y) / scale, crps(*even), rtol=0, atol=rounding)
        assert bool(energy_score(law, y, generator=0).isfinite().all())
        if applies("hdr", kind):
            # Logarithms of 1e300 that are added up.
            difference = nll(law, y) - nll(*even) - scale.log().sum()
            assert float(difference.abs().max()) < 3000 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_tiny_and_huge_targets_in_one_row(dtype):
    def measured(units, value):
        law, y = uneven("mixture", dtype, units)
        parameters = [p.clone().requires_grad_() for p in (law.logits, law.loc, law.scale_tril)]
        found = value(GaussianMixture(*parameters), y)
        slopes = torch.autograd.grad(found, parameters)
        scale = torch.tensor(units, dtype=dtype)
        return slopes[0], slopes[1] * scale, slopes[2] * scale.unsqueeze(-1)

    def penalty(prerank):
        return lambda law, y: CalibrationPenalty(prerank, n_samples=20)(law, y, generator=0)

    values = {prerank: penalty(prerank) for prerank in ("marginal", "hdr", "copula")}
    values["nll"] = lambda law, y: nll(law, y).mean()
    values["density"] = lambda law, y: law.log_prob(y + torch.zeros(2 * DIM, 1, 1)).mean()
    for name, value in values.items():
        expected = measured((1.0,) * DIM, value)
        for units in UNEVEN[dtype]:
            for found, wanted in zip(measured(units, value), expected, strict=True):
                bound = 1e7 * torch.finfo(dtype).eps * float(wanted.abs().max())
                torch.testing.assert_close(found, wanted, rtol=0, atol=bound, msg=name)
    for prerank in ("location", "scale", "dependency", "energy_score"):  # do not see tiny targets
        for units in UNEVEN[dtype]:
            slopes = measured(units, penalty(prerank))
            assert all(bool(slope.isfinite().all()) for slope in slopes), (prerank, units)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ratios_that_their_type_cannot_hold(dtype):
    near, far = UNEVEN[dtype]
    for kind in ("mixture", "members"):
        assert bool(pit(*uneven(kind, dtype, near), "pca", generator=0).isfinite().all())
        with pytest.raises(InputError, match=FAR):
            pit(*uneven(kind, dtype, far), "pca", generator=0)
    law, y = uneven("mixture", dtype, near)
    law.loc.requires_grad_()
    assert bool(law.rsample((9,), generator=0).isfinite().all())
    with pytest.raises(InputError, match=FAR):  # slopes of huge targets along tiny ones
        energy_score(law, y, generator=0)
    even, y = uneven("mixture", dtype, (1.0,) * DIM)
    even.loc.requires_grad_()
    y[3, 1] = near[2] ** 1.85  # a fill value is no target of another size
    (slope,) = torch.autograd.grad(energy_score(even, y, generator=0).sum(), even.loc)
    assert bool(slope.isfinite().all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("side", [-1, 1])
def test_one_component_of_another_size(dtype, side):
    """Tiny or huge beside the others: all values and gradients are numbers."""
    scores = {"nll": nll, "energy": energy_score, "crps": crps, "variogram": variogram_score}
    for power in {torch.float32: (58, 66, 100), torch.float64: (516, 532, 997)}[dtype]:
        size = 2.0 ** (side * power)
        torch.manual_seed(0)
        factor = (torch.eye(3) + torch.ones(3, 3).tril(-1) / 3).to(dtype)
        parameters = [
            torch.zeros(ROWS, 2, dtype=dtype),
            torch.zeros(ROWS, 2, 3, dtype=dtype),
            torch.stack([factor, size * factor]).expand(ROWS, 2, 3, 3).clone(),
        ]
        y = GaussianMixture(*parameters).sample(generator=1)
        values = {**scores, **{prerank: CalibrationPenalty(prerank) for prerank in SMOOTH}}
        for name, value in values.items():
            law = GaussianMixture(*(p.requires_grad_() for p in parameters))
            found = value(law, y).mean()
            slopes = torch.autograd.grad(found, parameters, materialize_grads=True)
            assert all(bool(x.isfinite().all()) for x in (found, *slopes)), (name, size)
            if name not in scores:
                # The largest of 3 components and 50 tests by chance: .31/sqrt(60) is their mean.
                assert float(pce(pit(law, y, name, generator=0)).max()) < 0.14, (name, size)


def test_crps_of_low_rank_normals_without_a_variance():
    loc, factor = torch.zeros(5, 2), torch.full((5, 2, 1), 2.0**66)
    law = LowRankMultivariateNormal(loc, factor, torch.ones(5, 2))
    expected = crps(Independent(Normal(loc, factor.squeeze(-1)), 1), loc)
    torch.testing.assert_close(crps(law, loc), expected)


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
