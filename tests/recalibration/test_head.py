"""The calibration head: it repairs what is wrong and leaves alone what is right."""

import copy
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.distributions import (
    AffineTransform,
    Bernoulli,
    Distribution,
    Exponential,
    ExpTransform,
    Gamma,
    Independent,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
)

import prerank
from prerank import CalibrationHead, Ensemble, GaussianMixture, calibrate
from prerank.distributions import round_to
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.files import read_tensors, write_tensors
from prerank.recalibration import Change, Copies
from prerank.recalibration.anatomy import Anatomy
from prerank.recalibration.change import LEVELS

ROWS, TARGETS = 600, 3


def mixture(rows: int, width: float = 1.0, seed: int = 0, components: int = 3) -> GaussianMixture:
    """Mixtures that differ between rows; their components are `width` times as wide as at 1."""
    g = torch.Generator().manual_seed(seed)
    tril = torch.tril(0.4 * torch.randn(rows, components, TARGETS, TARGETS, generator=g), -1)
    tril = tril + torch.eye(TARGETS)
    loc = 2 * torch.randn(rows, components, TARGETS, generator=g)
    return GaussianMixture(torch.randn(rows, components, generator=g), loc, width * tril)


def normal(rows: int, width: float = 1.0, seed: int = 0) -> MultivariateNormal:
    one = mixture(rows, width, seed, components=1)
    return MultivariateNormal(one.loc[:, 0], scale_tril=one.scale_tril[:, 0])


def independent(rows: int, width: float = 1.0, seed: int = 0) -> Distribution:
    one = mixture(rows, width, seed, components=1)
    return Independent(Normal(one.loc[:, 0], width * torch.ones(rows, TARGETS)), 1)


def transformed(rows: int, width: float = 1.0, seed: int = 0) -> Distribution:
    """A density on positive numbers, without moments of its own."""
    base = normal(rows, width, seed)
    squeezed = MultivariateNormal(0.3 * base.loc, scale_tril=0.3 * base.scale_tril)
    return TransformedDistribution(squeezed, [ExpTransform()])


def ensemble(rows: int, width: float = 1.0, seed: int = 0) -> Ensemble:
    return Ensemble(normal(rows, width, seed).rsample(torch.Size((40,))))


KINDS = {
    "mixture": mixture,
    "normal": normal,
    "independent": independent,
    "transformed": transformed,
    "ensemble": ensemble,
}

DEAR = ("transformed", "ensemble")  # kinds whose fits take seconds


def observed(kind: str, rows: int = ROWS, seed: int = 0) -> Tensor:
    """Observations that follow the predictions at width 1."""
    torch.manual_seed(seed + 100)
    return (normal if kind == "ensemble" else KINDS[kind])(rows, seed=seed).sample()


def some_change(stack: tuple[int, ...] = (), copies: int = 3, seed: int = 3) -> Change:
    """A change of everything."""
    g = torch.Generator().manual_seed(seed)
    zero = Change.identity(TARGETS, copies, stack=stack, like=torch.zeros(()))
    return Change(*(0.3 * torch.randn(part.shape, generator=g) for part in zero))


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k in DEAR)) for k in KINDS]
)
def test_a_calibrated_forecast_comes_back_as_it_is(kind: str) -> None:
    # Acceptance of a level by chance has a probability below .02 for each (normal tail at 2
    # standard errors, and held-out scores of a calibrated forecast fall), and the seed is fixed.
    dist, y = KINDS[kind](ROWS), observed(kind)
    head = CalibrationHead(steps=3).fit(dist, y)
    assert not head.change_.active, head.gains_
    assert head.report() == "nothing"
    calibrated = head(dist)
    if kind == "ensemble":
        assert torch.equal(calibrated.samples, dist.samples)
    else:
        torch.testing.assert_close(calibrated.log_prob(y), dist.log_prob(y))


@pytest.mark.parametrize(
    "kind",
    ["mixture", "normal", "independent", *(pytest.param(k, marks=pytest.mark.slow) for k in DEAR)],
)
def test_wrong_widths_are_repaired(kind: str) -> None:
    y = observed(kind)
    narrow = KINDS[kind](ROWS, 0.7)
    head = CalibrationHead("marginal+scale", steps=10).fit(narrow, y)
    new, truth = observed(kind, 2000, seed=5), KINDS[kind](2000, seed=5)
    before = KINDS[kind](2000, 0.7, seed=5)
    after = head(before)
    if kind == "ensemble":
        scores = [prerank.energy_score(d, new).mean() for d in (before, after, truth)]
        assert isinstance(after, Ensemble)
        assert after.samples.shape == before.samples.shape
    else:
        scores = [prerank.nll(d, new).mean() for d in (before, after, truth)]
    assert isinstance(after, GaussianMixture) == (kind in ("mixture", "normal", "independent"))
    gained, possible = float(scores[0] - scores[1]), float(scores[0] - scores[2])
    assert gained > 2 / 3 * possible > 0
    assert "widths of y0" in head.report()
    for prerank_name in ("marginal", "scale"):
        errors = [
            prerank.pce(prerank.pit(d, new, prerank_name, generator=0)) for d in (before, after)
        ]
        # The floor at 2,000 rows is .007, and calibration on 600 rows adds about as much.
        assert float(errors[1].mean()) < min(0.02, float(errors[0].mean()))


def test_all_parts_of_the_identity_are_the_identity() -> None:
    dist = mixture(50)
    same = Anatomy.of(dist).changed(
        Change.identity(TARGETS, 3, stack=(), like=dist.loc), frozenset(LEVELS)
    )
    y = dist.sample()
    torch.testing.assert_close(same.log_prob(y), dist.log_prob(y), atol=1e-4, rtol=1e-4)
    assert same.logits.shape[-1] == 12  # three copies of three components, and these themselves


def test_both_ways_to_the_density_agree() -> None:
    dist, levels = mixture(40), frozenset(LEVELS)
    y, change, parts = dist.sample(), some_change(), Anatomy.of(dist)
    torch.testing.assert_close(
        parts.log_prob(change, levels, y, dist.log_prob(y)),
        parts.changed(change, levels).log_prob(y),
        atol=1e-3,
        rtol=1e-4,
    )


def test_a_change_does_not_depend_on_the_order_of_targets() -> None:
    dist, change, order = mixture(40), some_change(), [2, 0, 1]
    covariance = dist.scale_tril @ dist.scale_tril.mT
    turned = GaussianMixture(
        dist.logits,
        dist.loc[..., order],
        torch.linalg.cholesky(covariance[..., order, :][..., order]),
    )
    moved = change._replace(
        **{
            name: getattr(change, name)[..., order]
            for name in (
                "widths",
                "shifts",
                "slopes",
                "centre",
                "contraction",
                "width_power",
                "copy_widths",
                "copy_shifts",
                "width_tilts",
            )
        }
    )
    moved = moved._replace(tilts=change.tilts[order])
    upper = change.mixing.triu(1)
    moved = moved._replace(mixing=(upper + upper.mT)[order][:, order])
    levels, y = frozenset(LEVELS), dist.sample()
    torch.testing.assert_close(
        Anatomy.of(dist).changed(change, levels).log_prob(y),
        Anatomy.of(turned).changed(moved, levels).log_prob(y[..., order]),
        atol=2e-3,
        rtol=1e-3,
    )


def test_a_change_does_not_depend_on_units() -> None:
    dist, change, levels = mixture(40), some_change(), frozenset(LEVELS)
    unit = torch.tensor([1e-3, 1.0, 1e3])
    other = GaussianMixture(dist.logits, unit * dist.loc, unit.unsqueeze(-1) * dist.scale_tril)
    y = dist.sample()
    torch.testing.assert_close(
        Anatomy.of(dist).changed(change, levels).log_prob(y),
        Anatomy.of(other)
        .changed(change._replace(centre=unit * change.centre), levels)
        .log_prob(unit * y)
        + unit.log().sum(),
        atol=2e-3,
        rtol=1e-3,
    )


def test_coupling_changes_correlations_and_leaves_margins() -> None:
    dist = mixture(40, components=1)
    zero = Change.identity(TARGETS, 1, stack=(), like=dist.loc)
    tighter = zero._replace(coupling=torch.tensor(0.4))
    after = Anatomy.of(dist).changed(tighter, frozenset({"dependence"}))
    torch.testing.assert_close(after.variance, dist.variance, atol=1e-4, rtol=1e-4)

    def correlations(d: GaussianMixture) -> Tensor:
        sd = d.variance.sqrt()
        return d.covariance_matrix / (sd.unsqueeze(-1) * sd.unsqueeze(-2))

    off = ~torch.eye(TARGETS, dtype=torch.bool)
    assert correlations(after)[:, off].square().mean() > correlations(dist)[:, off].square().mean()


def test_means_that_vary_too_little_are_repaired() -> None:
    torch.manual_seed(0)
    loc = 3 * torch.randn(ROWS, TARGETS) + 5
    y = loc + torch.randn(ROWS, TARGETS)
    shrunk = MultivariateNormal(0.5 * loc + 2.5, 3.25 * torch.eye(TARGETS))
    head = CalibrationHead("location", steps=3).fit(shrunk, y)
    # Least squares of 600 rows have a standard error of 2 / (3 sqrt(600)) = .03.
    assert (head(shrunk).mean - loc).abs().max() < 6 * 0.03 * 3.5
    assert "deviations of the predicted mean of y0" in head.report()


@pytest.mark.parametrize("seed", [8, 12])
def test_few_rows_do_little_harm(seed: int) -> None:
    # With all levels tried on 20 rows, one passes by chance and the fit costs up to 1.2 nats.
    torch.manual_seed(seed)
    dist, new = (
        GaussianMixture(
            torch.randn(n, 1), 1.5 * torch.randn(n, 1, 2), 0.7 * torch.eye(2).expand(n, 1, 2, 2)
        )
        for n in (20, 3000)
    )
    y, fresh = dist.sample(), new.sample()
    after = CalibrationHead().fit(dist, y)(new)
    assert float((prerank.nll(after, fresh) - prerank.nll(new, fresh)).mean()) < 0.05


def test_no_fit_is_worse_than_the_forecast_on_its_own_rows() -> None:
    # Observations at the predicted mean ask for widths of 0, and the penalty shifts by old widths.
    dist, y = MultivariateNormal(torch.zeros(300, 2), torch.eye(2)), torch.zeros(300, 2)
    after = CalibrationHead().fit(dist, y)(dist)
    assert float(prerank.nll(after, y).mean()) < float(prerank.nll(dist, y).mean())


def test_gradients_of_the_surroundings_do_not_matter() -> None:
    y = observed("normal", 100)
    base = normal(100, 0.6)
    known = CalibrationHead("marginal", steps=2).fit(base, y)
    loc = base.loc.clone().requires_grad_()
    learnt = MultivariateNormal(loc, scale_tril=base.scale_tril)
    with torch.no_grad():
        again = CalibrationHead("marginal", steps=2).fit(learnt, y)
    for head in (again, CalibrationHead("marginal", steps=2).fit(learnt, y)):
        torch.testing.assert_close(head.change_.width, known.change_.width)
        assert not head.change_.width.requires_grad


def test_equal_members_are_not_widened() -> None:
    torch.manual_seed(0)
    centre = torch.randn(300, 2)
    dist = Ensemble((centre + torch.randn(300, 2)).repeat(10, 1, 1))
    after = CalibrationHead("marginal", steps=2).fit(dist, centre + torch.randn(300, 2))(dist)
    assert float(after.variance.max()) < 1e-10  # members differ by rounding at most


def test_tilts_move_weight_to_the_side_they_name() -> None:
    dist = mixture(40)
    zero = Change.identity(TARGETS, 1, stack=(), like=dist.loc)
    up = torch.zeros(TARGETS, 4)
    up[0, 0] = 0.3
    after = Anatomy.of(dist).changed(zero._replace(tilts=up), frozenset({"tilts"}))
    moved = after.mean - dist.mean
    assert bool((moved[:, 0] > 0).all())  # the first polynomial is increasing
    narrower = zero._replace(width_tilts=torch.tensor([-1.0, 0.0, 0.0]))
    after = Anatomy.of(dist).changed(narrower, frozenset({"tilts"}))
    widths = [Anatomy.of(d).widths[..., 0].log() for d in (dist, after)]
    before, now = ((d.probs * w).sum(-1) for d, w in zip((dist, after), widths, strict=True))
    assert bool((now <= before + 1e-6).all())


@pytest.mark.parametrize(
    "kind", ["independent", *(pytest.param(k, marks=pytest.mark.slow) for k in DEAR)]
)
def test_correlations_are_made_where_there_are_none(kind: str) -> None:
    torch.manual_seed(1)
    correlated = 0.4 * torch.eye(TARGETS) + 0.6
    y = MultivariateNormal(torch.zeros(ROWS, TARGETS), correlated).sample()
    dist: Distribution = Independent(Normal(torch.zeros(ROWS, TARGETS), 1.0), 1)
    if kind == "transformed":  # the same, but not known to be Gaussian
        dist = TransformedDistribution(dist, [AffineTransform(0.0, 1.0, event_dim=1)])
    if kind == "ensemble":
        dist = Ensemble(dist.sample(torch.Size((40,))))
    head = CalibrationHead("location+copula", steps=20).fit(dist, y)
    covariance = Ensemble(head(dist).sample((200,))).covariance_matrix.mean(0)
    sd = covariance.diagonal().sqrt()
    found = (covariance / sd / sd.unsqueeze(-1))[~torch.eye(TARGETS, dtype=torch.bool)]
    # A correlation from 600 rows has a standard error of (1 - .36) / 24 = .03.
    assert float((found - 0.6).abs().max()) < 0.12
    assert "alike" in head.report()


def test_the_copies_of_a_normal_are_a_mixture() -> None:
    # Of one component, both forms of a change are the same distribution.
    zero = torch.zeros(())
    dist, change = normal(30), some_change()._replace(coupling=zero, tilts=zero.expand(TARGETS, 4))
    copies = Copies(dist, change)
    as_mixture = Anatomy.of(mixture(30, components=1)).changed(change, frozenset(LEVELS))
    y = copies.sample((200,))
    torch.testing.assert_close(copies.log_prob(y), as_mixture.log_prob(y), atol=2e-3, rtol=1e-3)
    pits = prerank.pit(as_mixture, y[0], "marginal+hdr", generator=0)
    torch.testing.assert_close(y.mean(0), as_mixture.mean, atol=6 * 2.5 / math.sqrt(200), rtol=0)
    assert pits.shape == (30, 4)
    moved, kept = (share.exp() for share in change.shares)
    shares = torch.cat([moved * torch.softmax(change.weights, -1), kept[None]])
    allocated = copies.allocate(200, None)
    counts = torch.stack([(allocated == c).sum(0) for c in range(4)], -1)
    assert (counts - 200 * shares).abs().max() <= 1


def test_no_observation_loses_more_than_the_share_that_is_kept() -> None:
    # Far in the tail of the forecast, where a narrow change has no density at all.
    narrow = Change.identity(TARGETS, 3, stack=(), like=torch.zeros(()))
    narrow = narrow._replace(width=torch.tensor(-3.0), slopes=torch.ones(TARGETS))
    dist, y = normal(30), 4 * torch.ones(30, TARGETS)
    for after in (
        Copies(dist, narrow),
        Anatomy.of(mixture(30, components=1)).changed(narrow, frozenset(LEVELS)),
    ):
        loss = prerank.nll(after, y) - prerank.nll(dist, y)
        torch.testing.assert_close(loss, torch.full((30,), math.log(101)), atol=1e-3, rtol=0)


@pytest.mark.parametrize("label", ["groups", "time"])
def test_rows_that_are_alike_are_not_evidence(label: str) -> None:
    # Forty cases, each of them ten times: random halves would confirm what they have in common.
    case = torch.arange(40).repeat_interleave(10)
    y = torch.randn(6, 40, 2, generator=torch.Generator().manual_seed(0))[:, case]  # six data sets
    new = torch.randn(6, 4000, 2, generator=torch.Generator().manual_seed(1))
    dist, test = (MultivariateNormal(torch.zeros_like(part), torch.eye(2)) for part in (y, new))
    lost, accepted = [], []
    for labels in ({label: case.numpy()}, {}):
        head = CalibrationHead("marginal", strength=0).fit(dist, y, **labels)
        lost.append(float((prerank.nll(head(test), new) - prerank.nll(test, new)).mean()))
        accepted.append(sum(int((amount > 0).sum()) for amount in head.amounts_.values()))
    assert accepted[0] < accepted[1] / 2
    assert lost[0] < lost[1] / 2


def test_draws_of_copies_carry_the_gradient_of_the_change() -> None:
    dist = normal(4).expand(torch.Size((4,)))
    apart = some_change()._replace(copy_shifts=torch.tensor([[2.0], [0.0], [-2.0]]).expand(3, 3))
    change = Change(*(part.double().requires_grad_() for part in apart))
    base = MultivariateNormal(dist.loc.double(), scale_tril=dist.scale_tril.double())
    directions = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)

    def expectation(parts: Change) -> Tensor:
        draws = Copies(base, parts).differentiable_draws(100_000, torch.Generator().manual_seed(0))
        assert draws.weights is not None
        return (draws.weights * (draws.points @ directions / 3 + 1).sin()).sum(0).mean()

    slopes = torch.autograd.grad(expectation(change), change, allow_unused=True)
    for name in ("weights", "copy_widths", "copy_shifts", "width"):
        at, slope = getattr(change, name), slopes[Change._fields.index(name)]
        assert slope is not None
        direction = slope / slope.norm()
        with torch.no_grad():
            up, down = (
                expectation(change._replace(**{name: at + sign * 0.02 * direction}))
                for sign in (1, -1)
            )
        # Weights: some 1,000 of the draws of each row go to another copy, and sqrt(1,000) times a
        # standard deviation of .5, over 100,000, over .04 and over the root of 4 rows is .002.
        bound = 4e-3 if name == "weights" else 1e-4
        assert float(slope.norm()) > 2 * bound
        assert abs(float(slope.norm()) - float((up - down) / 0.04)) < bound


def test_members_of_a_stack_are_fitted_as_if_alone() -> None:
    y = observed("mixture", 300)
    parts = [mixture(300, width) for width in (0.6, 1.5)]
    stack = GaussianMixture(
        *(
            torch.stack([getattr(p, name) for p in parts])
            for name in ("logits", "loc", "scale_tril")
        )
    )
    options = {"steps": 5, "preranks": "marginal+scale"}
    together = CalibrationHead(**options).fit(stack, y.expand(2, -1, -1))
    for m, part in enumerate(parts):
        alone = CalibrationHead(**options).fit(part, y)
        for name, value in alone.change_._asdict().items():
            torch.testing.assert_close(
                getattr(together.change_, name)[m], value, atol=2e-3, rtol=2e-3
            )
    assert together(stack).batch_shape == (2, 300)
    with pytest.raises(ShapeError, match="stack of shape"):
        together(parts[0])


def test_a_small_calibrated_ensemble_is_not_widened() -> None:
    # The fair energy score would ask for widths of 1.24 here.
    torch.manual_seed(0)
    dist, y = Ensemble(torch.randn(10, 2000, 2)), torch.randn(2000, 2)
    head = CalibrationHead(strength=0).fit(dist, y)
    assert float(head(dist).variance.mean() / dist.variance.mean()) == pytest.approx(1, abs=0.08)


def test_targets_that_do_not_vary_stay_as_they_are() -> None:
    torch.manual_seed(0)
    samples = 0.5 * torch.randn(30, 300, 3)
    samples[:, :40, 1] = 0  # no rain in any member
    y = torch.randn(300, 3)
    y[:40, 1] = 0
    dist = Ensemble(samples)
    after = CalibrationHead("marginal+scale", steps=5).fit(dist, y)(dist)
    assert torch.equal(after.samples[:, :40, 1], samples[:, :40, 1])
    assert float(after.variance[:, 0].mean()) > 0.6


def test_weights_of_members_are_kept() -> None:
    torch.manual_seed(0)
    weights = torch.zeros(20)
    weights[::5] = 1
    dist = Ensemble(0.5 * torch.randn(20, 200, 2), weights)
    after = CalibrationHead("marginal", steps=1).fit(dist, torch.randn(200, 2))(dist)
    assert torch.equal(after.weights, dist.weights)


def test_no_observation_is_put_outside_of_the_support() -> None:
    torch.manual_seed(0)
    dist = Independent(Exponential(torch.ones(400, 2)), 1)
    y = dist.sample() * 0.3
    y[:4] = 1e-4
    after = CalibrationHead("marginal", steps=5).fit(dist, y)(dist)
    assert bool(after.log_prob(y).isfinite().all())


def test_members_of_a_stack_do_not_decide_for_each_other() -> None:
    # One forecast is far off in shape, so that the penalty is needed; the other only in width.
    y = observed("mixture", 400)
    skewed = y + 0.4 * y.abs() ** 1.5
    parts = [mixture(400, 0.8), mixture(400, 0.8)]
    names = ("logits", "loc", "scale_tril")
    stack = GaussianMixture(*(torch.stack([getattr(p, name) for p in parts]) for name in names))
    options = {"steps": 5, "preranks": "marginal+scale"}
    together = CalibrationHead(**options).fit(stack, torch.stack([y, skewed]))
    alone = CalibrationHead(**options).fit(parts[0], y)
    assert {k: float(v[0]) for k, v in together.amounts_.items()} == pytest.approx(
        {k: float(v) for k, v in alone.amounts_.items()}
    )
    # The stack has copies, among which the draws of the penalty are allocated in another way.
    widths = [d.variance.sqrt() for d in (together(stack), alone(parts[0]))]
    torch.testing.assert_close(widths[0][0], widths[1], atol=0, rtol=0.03)


def test_nearly_singular_correlations_are_kept() -> None:
    tril = torch.eye(4)
    tril[1:, 0] = 1
    tril[range(1, 4), range(1, 4)] = 1e-3
    dist = GaussianMixture(torch.zeros(5, 1), torch.zeros(5, 1, 4), tril.expand(5, 1, 4, 4))
    zero = Change.identity(4, 2, stack=(), like=dist.loc)
    same = Anatomy.of(dist).changed(zero, frozenset(LEVELS))
    y = dist.sample()
    torch.testing.assert_close(same.log_prob(y), dist.log_prob(y), atol=0.05, rtol=0.01)


def test_a_head_is_for_one_kind_of_forecast() -> None:
    y = observed("normal", 200)
    head = CalibrationHead("marginal", steps=2).fit(normal(200, 0.5), y)
    with pytest.raises(NotApplicableError, match="fitted to 'mixture'"):
        head(ensemble(200))


def test_code_is_not_saved(tmp_path) -> None:
    head = CalibrationHead(lambda y: y.sum(-1), steps=2).fit(normal(100), observed("normal", 100))
    with pytest.raises(InputError, match="cannot be saved"):
        head.save(tmp_path / "head.safetensors")


def test_save_and_load(tmp_path) -> None:
    y = pd.DataFrame(observed("mixture").numpy(), columns=["rain", "wind", "sun"])
    head = CalibrationHead("marginal+pca(2)", 3.0, 2, steps=3).fit(mixture(ROWS, 0.5), y)
    assert "widths of rain" in head.report()
    assert "CalibrationHead('marginal+pca(2)', strength=3, copies=2)" in repr(head)
    path = tmp_path / "head.safetensors"
    head.save(path)
    again = CalibrationHead.load(path)
    assert repr(again) == repr(head)
    new = mixture(9, seed=4)
    assert torch.equal(again(new).log_prob(new.loc[:, 0]), head(new).log_prob(new.loc[:, 0]))
    tensors, about = read_tensors(path)
    tensors.pop("change.kept")  # a file of the first format: nothing of the forecast is kept
    write_tensors(tmp_path / "first.safetensors", tensors, about | {"format": "1"})
    first = CalibrationHead.load(tmp_path / "first.safetensors")
    assert float(first.change_.shares[1]) == -math.inf
    torch.testing.assert_close(first(new).probs[:, -3:], torch.zeros(9, 3))
    tensors.pop("change.tilts")
    write_tensors(tmp_path / "part.safetensors", tensors, about)
    with pytest.raises(InputError, match="incomplete"):
        CalibrationHead.load(tmp_path / "part.safetensors")
    data = path.read_bytes()
    path.write_bytes(data[:-3] + b"abc")
    with pytest.raises(InputError, match="damaged"):
        CalibrationHead.load(path)


def test_all_stands_for_what_applies() -> None:
    two = MultivariateNormal(torch.zeros(40, 2), torch.eye(2))
    y = torch.randn(40, 2)
    assert prerank.pit(two, y, "all").shape == (40, 2 + 1 + 1 + 2 + 1 + 1)
    for penalty in (prerank.CalibrationPenalty("all"), prerank.CalibrationPenalty(["all"])):
        assert copy.deepcopy(penalty)(two, y).isfinite()
    with pytest.raises(NotApplicableError):
        prerank.CalibrationPenalty("marginal+dependency")(two, y)
    assert list(prerank.diagnose(two, y, preranks="all", n_null=20).skipped) == ["dependency"]
    assert list(prerank.calibrate(two, y, steps=1).skipped_) == ["dependency"]
    assert list(CalibrationHead(steps=1).fit(ensemble(40), observed("ensemble", 40)).skipped_) == [
        "hdr"
    ]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: CalibrationHead("depht"), InputError, "unknown prerank"),
        (lambda: CalibrationHead(strength=-1), InputError, "strength"),
        (lambda: CalibrationHead(copies=0), InputError, "copies"),
        (lambda: CalibrationHead()(normal(5)), InputError, "not fitted"),
        (lambda: CalibrationHead().fit(normal(5), torch.zeros(5, 3)), InputError, "5 rows"),
        (lambda: CalibrationHead().fit(normal(30), torch.zeros(30, 2)), ShapeError, "y"),
        (
            lambda: CalibrationHead().fit(
                Independent(Bernoulli(torch.full((30, 2), 0.5)), 1), torch.zeros(30, 2)
            ),
            NotApplicableError,
            "discrete targets",
        ),
        (
            lambda: CalibrationHead().fit(round_to(normal(30), torch.eye(3)), torch.zeros(30, 3)),
            NotApplicableError,
            "discrete targets",
        ),
        (
            lambda: CalibrationHead().fit(
                Independent(Exponential(torch.ones(30, 2)), 1), -torch.ones(30, 2)
            ),
            InputError,
            "density 0",
        ),
        (
            lambda: CalibrationHead("dependency").fit(
                MultivariateNormal(torch.zeros(30, 2), torch.eye(2)), torch.zeros(30, 2)
            ),
            NotApplicableError,
            "at least 3 targets",
        ),
    ],
)
def test_what_is_refused(call, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_calibrate_passes_groups_and_time_on() -> None:
    dist, y = normal(60, 0.5), observed("normal", 60)
    names = [str(row // 3) for row in range(60)]
    for rows in ({"groups": names}, {"time": list(range(60))}):
        short = calibrate(dist, y, steps=2, **rows)
        head = CalibrationHead(steps=2).fit(dist, y, **rows)
        assert torch.equal(short.change_.width, head.change_.width)
    with pytest.raises(ShapeError, match="groups"):
        calibrate(dist, y, steps=2, groups=names[:5])


def lognormal(loc: Tensor, scale: Tensor) -> Independent:
    return Independent(TransformedDistribution(Normal(loc, scale), [ExpTransform()]), 1)


@pytest.mark.slow
def test_a_density_with_a_bound_is_calibrated_although_some_draws_leave_it() -> None:
    """The penalty is not finite in some steps of this fit."""
    torch.manual_seed(7)
    loc, scale = torch.randn(60, 2), (0.7 * torch.randn(60, 2)).exp()
    y = lognormal(loc, scale).sample()
    head = CalibrationHead().fit(lognormal(loc, 0.5 * scale), y)
    assert all(bool(part.isfinite().all()) for part in head.change_)
    assert "widths" in head.report()


def test_a_density_that_is_infinite_at_its_bound_is_calibrated() -> None:
    """Gamma distributions with a shape below 1: an observation may round to 0."""
    torch.manual_seed(0)
    loc, scale = torch.randn(400, 2), (0.5 * torch.randn(400, 2)).exp()

    def gamma(spread: Tensor) -> Independent:
        return Independent(Gamma(1 / spread**2, loc.exp() / spread**2), 1)

    y = gamma(scale).sample()
    head = CalibrationHead(strength=0).fit(gamma(0.5 * scale), y)
    assert all(bool(gain.isfinite().all()) for gain in head.gains_.values())
    assert max(map(float, head.gains_.values())) > 0.5


def test_weights_that_go_with_the_place_of_a_member_are_respected() -> None:
    torch.manual_seed(0)
    place = torch.linspace(-4, 4, 200)
    weights = (-0.5 * place**2).softmax(0)[:, None].expand(200, 600)
    loc = torch.randn(600, 1)
    dist = Ensemble(loc + place[:, None, None], weights)
    head = CalibrationHead(steps=2).fit(dist, loc + torch.randn(600, 1))
    assert head.report() == "nothing"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [({"seed": 2**70}, "seed"), ({"strength": False}, "strength"), ({"strength": "1"}, "strength")],
)
def test_arguments_are_refused_before_the_fit(arguments: dict[str, object], word: str) -> None:
    with pytest.raises((InputError, TypeError), match=word):
        CalibrationHead(**arguments)


def test_a_strength_of_numpy_can_be_saved(tmp_path: Path) -> None:
    head = CalibrationHead(strength=np.int64(0)).fit(normal(40), observed("normal", 40))
    head.save(tmp_path / "head.safetensors")
    assert CalibrationHead.load(tmp_path / "head.safetensors").strength == 0


def test_one_time_for_all_rows_is_refused() -> None:
    with pytest.raises(InputError, match="time has 1 different"):
        CalibrationHead().fit(normal(40), observed("normal", 40), time=[1] * 40)
