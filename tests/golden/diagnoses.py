"""Diagnoses, scores, PITs and penalties in Python, on fixed inputs in float64."""

import numpy as np
import pandas as pd
import torch
from torch.distributions import MultivariateNormal

import prerank
from golden.compare import plain

N, D = 150, 3
_CORRELATED = 0.4 * np.eye(D) + 0.6
_ROOT = np.linalg.cholesky(_CORRELATED)
PRERANKS = (
    *("marginal", "location", "scale", "dependency", "pca", "pca(0.8)", "hdr", "copula"),
    *("multivariate_rank", "average_rank", "band_depth", "energy_score"),
    "threshold_exceedance",
)
PENALTIES = ("marginal", "marginal+hdr", "location+scale+dependency", "pca", "copula")


def _numbers(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def make_mixture():
    """Make Gaussian mixtures of two components whose parameters depend on the row."""
    logits = torch.tensor(_numbers(0, N, 2))
    loc = torch.tensor(_numbers(1, N, 2, D))
    scale = torch.tensor(np.broadcast_to(_ROOT, (N, 2, D, D)).copy())
    return prerank.GaussianMixture(logits, loc, scale)


def make_from_mixture():
    """Make observations that come from these mixtures."""
    dist, random = make_mixture(), np.random.default_rng(2)
    second = random.random(N) < torch.softmax(dist.logits, -1)[:, 1].numpy()
    loc = dist.loc.numpy()[np.arange(N), second.astype(int)]
    return loc + random.normal(size=(N, D)) @ _ROOT.T


def make_ensemble(samples=30):
    """Make samples that are too narrow, and correlated observations with names."""
    members = 0.6 * (_numbers(3, samples, N, D) @ _ROOT.T)
    observed = pd.DataFrame(_numbers(4, N, D) @ _ROOT.T, columns=["rain", "wind", "sun"])
    return prerank.Ensemble(members), observed


def make_cases():
    """Make a forecast and observations for each diagnosis."""
    independent = MultivariateNormal(
        torch.zeros(N, D, dtype=torch.float64), torch.eye(D, dtype=torch.float64)
    )
    return {
        "mixture": (make_mixture(), make_from_mixture()),
        "ensemble": make_ensemble(),
        "dependence": (independent, _numbers(5, N, D) @ _ROOT.T),
    }


def make_diagnoses():
    """Diagnose every case: table, verdict, and what was skipped."""
    found = {}
    for name, (dist, observed) in make_cases().items():
        diagnosis = prerank.diagnose(dist, observed, generator=0)
        verdict = diagnosis.verdict()
        found[name] = {
            "table": diagnosis.table,
            "headline": verdict.headline,
            "points": verdict.points,
            "advice": verdict.advice,
            "skipped": diagnosis.skipped,
            "remarks": diagnosis.remarks,
            "text": str(diagnosis).split("\n"),
        }
    return plain(found)


def make_scores():
    """Compute every score of a mixture and of an ensemble."""
    found = {}
    ensemble, named = make_ensemble()
    cases = {"mixture": (make_mixture(), make_from_mixture()), "ensemble": (ensemble, named)}
    for name, (dist, observed) in cases.items():
        scores = {
            "energy_fair": prerank.energy_score(dist, observed, generator=0),
            "energy_nrg": prerank.energy_score(dist, observed, estimator="nrg", generator=0),
            "crps": prerank.crps(dist, observed, generator=0),
            "variogram": prerank.variogram_score(dist, observed, generator=0),
        }
        if name == "mixture":
            scores["nll"] = prerank.nll(dist, observed)
        found[name] = {key: values[:10] for key, values in scores.items()}
    return plain(found)


def make_pits():
    """Compute PITs of every pre-rank, and the calibration errors that follow from them."""
    found = {}
    dist, observed = make_mixture(), make_from_mixture()
    for label in PRERANKS:
        z = prerank.pit(dist, observed, label, n_samples=20, generator=0)
        found[label] = {"first": z[:5], "pce": prerank.pce(z)}
    z = prerank.pit(dist, observed, "marginal")
    smooth = prerank.smooth_pit(dist, observed, "marginal+hdr", n_samples=20, generator=0)
    found["smooth"] = smooth[:5]
    found["curve"] = prerank.reliability_curve(z, levels=10).observed
    histogram = prerank.pit_histogram(z, bins=5)
    found["histogram"] = {"edges": histogram.edges, "density": histogram.density}
    found["floor"] = [prerank.pce_floor(n) for n in (10, 100, 1000)]
    found["null"] = np.quantile(prerank.null_pce(50), [0.05, 0.5, 0.95])
    return plain(found)


def make_penalties():
    """Compute values and gradients of penalties, of today's form and of the published one."""
    found = {}
    mixture, observed = make_mixture(), torch.tensor(make_from_mixture())
    for label in PENALTIES:
        for form in ("default", "published"):
            if form == "published" and label not in ("marginal", "marginal+hdr"):
                continue
            make = prerank.CalibrationPenalty
            penalty = (make if form == "default" else make.published)(label, n_samples=20)
            loc = mixture.loc.clone().requires_grad_()
            dist = prerank.GaussianMixture(mixture.logits, loc, mixture.scale_tril)
            value = penalty(dist, observed, generator=0)
            (gradient,) = torch.autograd.grad(value, loc)
            found[f"{label}, {form}"] = {"value": value, "gradient": gradient[:4]}
    return plain(found)
