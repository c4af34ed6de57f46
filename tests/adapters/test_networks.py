"""Deep ensembles and dropout."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.distributions import Independent, Laplace, MultivariateNormal, Normal

from adapters.judging import correlated, judge
from prerank import CalibrationPenalty, Ensemble, GaussianMixture
from prerank.adapters import Mixture, deep_ensemble, mc_dropout
from prerank.errors import InputError, PrerankError

INPUTS, DIM = 3, 2


class Head(nn.Module):
    """A network whose body gives the locations of a law."""

    def __init__(self, law, *layers):
        super().__init__()
        self.body, self.law = nn.Sequential(*layers), law

    def forward(self, x):
        return self.law(self.body(x))


def normal(loc):
    return Independent(Normal(loc, 0.5), 1)


def laplace(loc):
    return Independent(Laplace(loc, 0.5), 1)


def dependent(loc):
    return MultivariateNormal(loc, torch.tensor([[0.3, 0.2], [0.2, 0.4]]))


def point(loc):
    return loc


LAWS = {
    "independent": (normal, GaussianMixture),
    "multivariate": (dependent, GaussianMixture),
    "laplace": (laplace, Mixture),
    "points": (point, Ensemble),
}
by_law = pytest.mark.parametrize("law", LAWS)


def linear(law, seed):
    torch.manual_seed(seed)
    return Head(law, nn.Linear(INPUTS, DIM))


def dropping(law=normal, p=0.5):
    torch.manual_seed(0)
    layers = [nn.Linear(INPUTS, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(p)]
    return Head(law, *layers, nn.Linear(16, DIM))


@by_law
def test_an_ensemble_is_the_mixture_of_its_members(law):
    build, kind = LAWS[law]
    modules = [linear(build, seed) for seed in range(4)]
    x = torch.randn(20, INPUTS)
    dist = deep_ensemble(modules, x)
    assert isinstance(dist, kind)
    assert (dist.batch_shape, dist.event_shape) == ((20,), (DIM,))
    means = torch.stack([module.body(x) for module in modules])
    torch.testing.assert_close(dist.mean, means.mean(0))
    if kind is Ensemble:
        torch.testing.assert_close(dist.samples, means)
        return
    y = torch.randn(20, DIM)
    densities = torch.stack([module(x).log_prob(y).exp() for module in modules])
    torch.testing.assert_close(dist.log_prob(y).exp(), densities.mean(0))
    first = deep_ensemble(modules, x, weights=[1, 0, 0, 0])
    torch.testing.assert_close(first.log_prob(y).exp(), densities[0])


@pytest.mark.parametrize("convert", [np.asarray, pd.DataFrame, torch.Tensor.tolist])
def test_inputs_become_tensors_of_the_network(convert):
    x = torch.randn(20, INPUTS)
    modules = [linear(normal, seed) for seed in range(2)]
    torch.testing.assert_close(
        deep_ensemble(modules, convert(x)).mean, deep_ensemble(modules, x).mean
    )
    assert deep_ensemble([m.double() for m in modules], convert(x)).mean.dtype == torch.float64


@by_law
def test_a_right_ensemble_is_cleared_and_a_narrow_one_blamed(law):
    build, kind = LAWS[law]
    g = torch.Generator().manual_seed(1)
    # Points come from as many networks as there are rows: the rows share them, and the ranks of all
    # are off together by the chance of a few.
    rows, members = (200, 200) if kind is Ensemble else (1000, 30)
    x = torch.randn(rows, INPUTS, generator=g)
    modules = [linear(build, seed) for seed in range(members)]
    dist = deep_ensemble(modules, x)
    if kind is Ensemble:  # one more network of the same kind for each row
        y = torch.stack([linear(build, 1000 + n)(row) for n, row in enumerate(x)]).detach()
        judge(dist, y)
        judge(dist, 3 * y, blamed="marginal scale")
        return
    y = dist.sample()
    judge(dist, y)
    judge(deep_ensemble(modules[:1], x), y, blamed="marginal hdr")


def test_evaluation_mode_and_back():
    module = dropping().train()
    module.body[2].eval()
    modes = [layer.training for layer in module.modules()]
    running, x = module.body[1].running_mean.clone(), torch.randn(20, INPUTS)
    one, two = deep_ensemble([module] * 2, x), deep_ensemble([module] * 2, x)
    torch.testing.assert_close(one.loc, two.loc, rtol=0, atol=0)  # no dropout
    assert torch.equal(module.body[1].running_mean, running)
    assert [layer.training for layer in module.modules()] == modes


def test_modes_come_back_after_an_error():
    module = dropping().train()
    with pytest.raises(RuntimeError):
        deep_ensemble([module], torch.randn(20, INPUTS + 1))
    with pytest.raises(RuntimeError):
        mc_dropout(module, torch.randn(20, INPUTS + 1))
    assert all(layer.training for layer in module.modules())


def test_the_penalty_reaches_every_member():
    modules = [linear(normal, seed) for seed in range(3)]
    x = torch.randn(50, INPUTS)
    y = torch.randn(50, DIM)
    value = CalibrationPenalty("marginal+hdr")(deep_ensemble(modules, x), y, generator=0)
    value.backward()
    for module in modules:
        assert all(bool(p.grad.abs().max() > 0) for p in module.parameters())


# --- dropout ---------------------------------------------------------------------------------


def test_passes_have_masks_of_their_own():
    module = dropping(point).eval()
    x = torch.randn(1, INPUTS).expand(400, INPUTS)
    dist = mc_dropout(module, x, n_passes=30, generator=0)
    assert isinstance(dist, Ensemble)
    assert len(dist.samples) == 30
    # Equal rows differ, since each has its own masks, and so do passes.
    assert dist.samples[0].std(0).min() > 0
    assert dist.samples[:, 0].std(0).min() > 0
    # Dropout keeps the mean of a linear last layer: 12,000 passes, four standard errors.
    draws = dist.samples.reshape(-1, DIM)
    error = draws.std(0) / len(draws) ** 0.5
    assert bool(((draws.mean(0) - module(x[:1])[0]).abs() < 4 * error).all())


def test_a_seed_fixes_the_masks_and_nothing_else_changes():
    module = dropping().train()
    x = torch.randn(20, INPUTS)
    running, state = module.body[1].running_mean.clone(), torch.get_rng_state()
    one, two, other = (mc_dropout(module, x, generator=g) for g in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(module.body[1].running_mean, running)
    assert all(layer.training for layer in module.modules())
    assert torch.equal(one.loc, two.loc)
    assert not torch.equal(one.loc, other.loc)
    assert mc_dropout(module, x).loc.shape == (20, 50, DIM)  # from torch's own generator
    assert not torch.equal(torch.get_rng_state(), state)


LAYERS = {
    "dropout": lambda: nn.Dropout(0.5),
    "alpha": lambda: nn.AlphaDropout(0.5),
    "recurrent": lambda: nn.LSTM(INPUTS, INPUTS, num_layers=2, dropout=0.5, batch_first=True),
    "attention": lambda: nn.MultiheadAttention(INPUTS, 1, dropout=0.5, batch_first=True),
}


class Sequence(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        steps = x.unsqueeze(1).expand(-1, 5, -1)
        steps = steps * torch.arange(1.0, 6)[:, None]
        if isinstance(self.layer, nn.MultiheadAttention):
            return self.layer(steps, steps, steps)[0].sum(1)
        found = self.layer(steps)
        return (found[0] if isinstance(found, tuple) else found).sum(1)


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("layer", LAYERS)
def test_every_kind_of_layer_drops(layer, gradients):
    torch.manual_seed(0)
    network, x = Sequence(LAYERS[layer]()).eval(), torch.randn(20, INPUTS)
    with torch.set_grad_enabled(gradients):  # without them torch may take other paths
        dist = mc_dropout(network, x, generator=0)
    assert float(dist.samples.std(0).detach().max()) > 1e-3
    assert not any(part.training for part in network.modules())


def test_one_recurrent_layer_has_nothing_to_drop_between():
    with pytest.warns(UserWarning, match="num_layers"):
        single = nn.LSTM(INPUTS, INPUTS, dropout=0.5, batch_first=True)
    with pytest.raises(InputError, match="no layer with dropout"):
        mc_dropout(Sequence(single), torch.randn(20, INPUTS))


def test_a_dropout_law_is_cleared_and_the_network_without_it_blamed():
    """Truth: a new mask and noise for each row."""
    module = dropping(lambda loc: Independent(Normal(loc, 0.1), 1))
    x = torch.randn(800, INPUTS)
    truth = mc_dropout(module, x, n_passes=2, generator=5)
    with torch.no_grad():
        y = Normal(truth.loc[:, 0], 0.1).sample()
        dist = mc_dropout(module, x, n_passes=100, generator=0)
    judge(dist, y)
    # The 16 hidden values move both targets: a network without dropout is too narrow for them.
    judge(deep_ensemble([module], x), y, blamed="marginal hdr")


BAD = {
    "no network": (lambda: deep_ensemble([], torch.zeros(3, INPUTS)), "modules is empty"),
    "function": (lambda: deep_ensemble([normal], torch.zeros(3, DIM)), "list of torch.nn.Module"),
    "no module": (lambda: mc_dropout(normal, torch.zeros(3, DIM)), "must be a torch.nn.Module"),
    "no dropout": (lambda: mc_dropout(linear(normal, 0), torch.zeros(3, INPUTS)), "no layer with"),
    "dropout of zero": (lambda: mc_dropout(dropping(p=0.0), torch.zeros(3, INPUTS)), "no layer"),
    "one pass": (
        lambda: mc_dropout(dropping(), torch.zeros(3, INPUTS), n_passes=1),
        "n_passes must be at least 2",
    ),
    "text": (lambda: deep_ensemble([linear(normal, 0)], [["a"] * INPUTS]), "x must"),
    "tuple": (
        lambda: deep_ensemble([linear(lambda loc: (loc, loc), 0)], torch.zeros(3, INPUTS)),
        "got tuple",
    ),
    "different shapes": (
        lambda: deep_ensemble(
            [linear(point, 0), linear(lambda loc: loc[:, :1], 0)], torch.zeros(3, INPUTS)
        ),
        "different shapes",
    ),
    "scalar laws": (
        lambda: deep_ensemble([linear(lambda loc: Normal(loc, 1.0), 0)], torch.zeros(3, INPUTS)),
        "wrap it in Independent",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises(PrerankError, match=message):
        call()


def test_a_missing_dependence_is_found():
    y = correlated(1000).float()
    module = linear(lambda loc: Independent(Normal(0 * loc, 1.0), 1), 0)
    dist = deep_ensemble([module] * 2, torch.zeros(1000, INPUTS))
    judge(dist, y, blamed="scale location", cleared="marginal")
