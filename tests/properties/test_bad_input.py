"""Whatever is passed in: a useful answer or a useful error, never anything else."""

import inspect
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import (
    Dirichlet,
    Distribution,
    Exponential,
    Independent,
    MultivariateNormal,
    Normal,
    Poisson,
    Wishart,
)

import prerank
from prerank import (
    Ensemble,
    GaussianMixture,
    PrerankError,
    ProjectedCalibrationError,
    crps,
    diagnose,
    energy_score,
    errors,
    nll,
    null_pce,
    pce,
    pce_floor,
    pit,
    pit_histogram,
    reliability_curve,
    smooth_pit,
    variogram_score,
)
from prerank.preranks import Marginal
from truths import gaussian_mixture, independent_normal, multivariate_normal, student_copula

N, D = 6, 3
NAN, INF = float("nan"), float("inf")


def test_every_error_is_also_a_builtin_one():
    tree = [getattr(errors, name) for name in errors.__all__]
    for error in tree:
        assert issubclass(error, PrerankError)
        if error is not PrerankError:
            assert issubclass(error, ValueError | TypeError)


def refuses(words, call, *args, **kwargs):
    """The call raises one of our errors, whose message holds all words."""
    with pytest.raises(PrerankError) as caught:
        call(*args, **kwargs)
    assert isinstance(caught.value, ValueError | TypeError)
    for word in words:
        assert word in str(caught.value)


def update(prerank):
    def call(dist, y, **options):
        ProjectedCalibrationError(prerank, **options).update(dist, y)

    return call


# Everything that takes (dist, y).
ENTRIES = {
    "pit marginal": lambda dist, y, **o: pit(dist, y, "marginal", **o),
    "pit scale": lambda dist, y, **o: pit(dist, y, "scale", **o),
    "pit copula": lambda dist, y, **o: pit(dist, y, "copula", **o),
    "smooth_pit marginal": lambda dist, y, **o: smooth_pit(dist, y, "marginal", **o),
    "smooth_pit scale": lambda dist, y, **o: smooth_pit(dist, y, "scale", **o),
    "diagnose": lambda dist, y, **o: diagnose(dist, y, n_null=10, **o),
    "compare": lambda dist, y, **o: prerank.compare(dist, dist, y, preranks="scale", **o),
    "nll": nll,
    "energy_score": energy_score,
    "variogram_score": variogram_score,
    "crps": crps,
    "update": update("scale"),
}
SAMPLING = {  # those that draw from a distribution without closed forms
    name: call
    for name, call in ENTRIES.items()
    if name not in ("pit marginal", "smooth_pit marginal", "nll")
}


def points(*shape, dtype=torch.float64):
    return torch.zeros(shape, dtype=dtype)


def with_value(value):
    y = points(N, D)
    y[2, 1] = value
    return y


def normal():
    return multivariate_normal(N, dim=D)


BAD_Y = [
    ("NaN", with_value(NAN), ["y", "1 NaN"]),
    ("infinite", with_value(INF), ["y", "infinite"]),
    ("minus infinite", with_value(-INF), ["y", "infinite"]),
    ("NaN in numpy", with_value(NAN).numpy(), ["y", "1 NaN"]),
    ("missing in pandas", pd.DataFrame(np.ones((N, D))).mask(np.eye(N, D) == 1), ["y", "3 NaN"]),
    ("missing in lists", [[1.0, None, 1.0]] * N, ["y", "6 NaN"]),
    ("wrong D", points(N, D + 1), ["(6, 4)", "(6,)", "(3,)"]),
    ("one target of several", points(N, 1), ["(6, 1)", "(6, 3)"]),
    ("wrong N", points(N + 1, D), ["(7, 3)", "(6, 3)"]),
    ("one row", points(1, D), ["(1, 3)", "(6, 3)"]),
    ("transposed", points(D, N), ["(3, 6)", "(6, 3)"]),
    ("stack that dist has not", points(2, N, D), ["(2, 6, 3)", "(6, 3)"]),
    ("vector", points(N), ["y", "(6,)"]),
    ("number", 1.0, ["y", "(..., N, D)"]),
    ("empty rows", points(0, D), ["y", "(0, 3)"]),
    ("no targets", points(N, 0), ["y", "(6, 0)"]),
    ("empty list", [], ["y", "(0,)"]),
    ("other device", torch.empty(N, D, device="meta", dtype=torch.float64), ["meta", "cpu", "y"]),
    ("integers", torch.zeros(N, D, dtype=torch.int64), ["y", "int64"]),
    ("booleans", torch.zeros(N, D, dtype=torch.bool), ["y", "bool"]),
    ("half", torch.zeros(N, D, dtype=torch.float16), ["y", "float16", "y.float()"]),
    ("bfloat", torch.zeros(N, D, dtype=torch.bfloat16), ["y", "bfloat16", "y.float()"]),
    ("half in numpy", np.zeros((N, D), np.float16), ["y", "float16"]),
    ("complex", torch.zeros(N, D, dtype=torch.complex64), ["y", "complex64"]),
    ("complex in numpy", np.zeros((N, D), complex), ["y", "complex128"]),
    ("long double", np.zeros((N, D), np.longdouble), ["y"]),
    ("strings", [["a"] * D] * N, ["y"]),
    ("numbers as text", np.array([["1"] * D] * N), ["y"]),
    ("text in pandas", pd.DataFrame({"a": ["x"] * N, "b": [1.0] * N, "c": [1.0] * N}), ["y"]),
    ("dates", np.zeros((N, D), "datetime64[s]"), ["y", "datetime64"]),
    ("one string", "observations", ["y"]),
    ("None", None, ["y"]),
    ("dict", {"y": 1}, ["y"]),
    ("set", {1.0, 2.0}, ["y"]),
    ("function", lambda: None, ["y"]),
    ("ragged list", [[1.0, 2.0, 3.0]] * (N - 1) + [[1.0, 2.0]], ["y", "rectangular"]),
    ("ragged objects", [[1.0, "a", None]] * N, ["y"]),
]


# One of each kind of fault, for the entries that only pass y on to the same checks.
FAULTS = ["NaN", "infinite", "wrong D", "wrong N", "transposed", "number", "empty rows"]
FAULTS += ["other device", "integers", "half", "strings", "None"]


@pytest.mark.parametrize(("y", "words"), [c[1:] for c in BAD_Y], ids=[c[0] for c in BAD_Y])
def test_bad_observations(y, words):
    refuses(words, ENTRIES["pit scale"], normal(), y)


@pytest.mark.parametrize("call", ENTRIES.values(), ids=ENTRIES)
def test_every_entry_checks_the_observations(call):
    for name, y, words in BAD_Y:
        if name in FAULTS:
            refuses(words, call, normal(), y)


@pytest.mark.parametrize("call", ENTRIES.values(), ids=ENTRIES)
def test_observations_that_overflow_the_dtype_of_the_prediction(call):
    dist = MultivariateNormal(torch.zeros(N, D), torch.eye(D))
    refuses(["y", "infinite"], call, dist, torch.full((N, D), 1e300, dtype=torch.float64))


class Nothing(Distribution):
    """Declares shapes and can do nothing."""

    arg_constraints = {}  # noqa: RUF012

    def __init__(self, batch_shape, event_shape):
        super().__init__(torch.Size(batch_shape), torch.Size(event_shape), validate_args=False)


def meta_normal():
    loc = torch.empty(N, D, device="meta")
    return Independent(Normal(loc, loc, validate_args=False), 1, validate_args=False)


@pytest.fixture(scope="module")
def model():
    """A fitted regressor."""
    x = np.random.default_rng(0).normal(size=(60, D))
    plain = prerank.MixtureRegressor(1, method="none", hidden=(4,), max_epochs=1, random_state=0)
    return plain.fit(x, x)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_refused_wherever_there_are_rows(layout, model):
    nested = torch.nested.nested_tensor([torch.zeros(2, D), torch.zeros(3, D)], layout=layout)
    dist = MultivariateNormal(torch.zeros(60, D), torch.eye(D))
    rows = np.random.default_rng(1).normal(size=(60, D))
    y = torch.from_numpy(rows).float()
    for call in (
        lambda: pit(dist, nested, "marginal"),
        lambda: pit(dist, [nested, nested], "marginal"),
        lambda: model.fit(nested, rows),
        lambda: model.fit(rows, nested),
        lambda: model.fit(rows, rows, groups=nested),
        lambda: model.fit(rows, rows, time=nested),
        lambda: model.predict(nested),
        lambda: model.score(rows, nested),
        lambda: model.score(rows, rows, sample_weight=nested),
        lambda: diagnose(dist, y, time=nested),
        lambda: diagnose(dist, y, cluster=nested),
        lambda: prerank.diagnose_where(dist, y, nested),
        lambda: prerank.calibrate(dist, y, groups=nested),
        lambda: prerank.compare(dist, dist, y, time=nested),
        lambda: prerank.Monitor().update(dist, y, time=nested),
        lambda: prerank.CalibrationPenalty("marginal")(dist, y, shift=nested),
    ):
        refuses(["nested tensor"], call)


BAD_DIST = [
    ("samples", points(10, N, D), ["dist", "Tensor", "Ensemble"]),
    ("array", np.zeros((10, N, D)), ["dist", "ndarray", "Ensemble"]),
    ("None", None, ["dist", "NoneType"]),
    ("text", "normal", ["dist", "str"]),
    ("a class", MultivariateNormal, ["dist", "type"]),
    ("scalar events", Normal(points(N, D), 1.0), ["event_shape ()", "(6, 3)", "Independent"]),
    ("one number", Normal(points(), 1.0), ["event_shape ()", "Independent"]),
    ("matrix events", Wishart(torch.tensor(4.0), torch.eye(3)), ["event_shape (3, 3)"]),
    (
        "no batch",
        MultivariateNormal(points(D), torch.eye(D).double()),
        ["batch_shape ()", "(3,)", "expand"],
    ),
    ("empty batch", Independent(Normal(points(0, D), 1.0), 1), ["batch_shape (0,)", "(3,)"]),
    ("empty stack", Nothing((0, N), (D,)), ["batch_shape (0, 6)"]),
    ("no targets", Nothing((N,), (0,)), ["(0,)"]),
    ("other device", meta_normal(), ["meta", "cpu"]),
]


@pytest.mark.parametrize(("dist", "words"), [c[1:] for c in BAD_DIST], ids=[c[0] for c in BAD_DIST])
def test_bad_distributions(dist, words):
    refuses(words, ENTRIES["pit scale"], dist, points(N, D))


@pytest.mark.parametrize("call", ENTRIES.values(), ids=ENTRIES)
def test_every_entry_checks_the_distribution(call):
    for name, dist, words in BAD_DIST:
        if name in ("samples", "scalar events", "no batch", "other device"):
            refuses(words, call, dist, points(N, D))


@pytest.mark.parametrize("call", ENTRIES.values(), ids=ENTRIES)
def test_nothing_can_be_computed_on_the_meta_device(call):
    refuses(["y", "meta"], call, meta_normal(), torch.empty(N, D, device="meta"))


BAD_GENERATORS = ["seed", 1.5, True, np.random.default_rng(0), [1], torch.tensor(1)]


@pytest.mark.parametrize("call", SAMPLING.values(), ids=SAMPLING)
def test_bad_generators(call):
    # An ensemble needs no draws, but a bad generator is a mistake all the same.
    for dist in (student_copula(N, dim=D), Ensemble(torch.randn(5, N, D))):
        for generator in BAD_GENERATORS:
            words = ["generator", type(generator).__name__]
            refuses(words, call, dist, points(N, D) + 1, generator=generator)


SEEDS = [0, -1, 2**63, 2**64 - 1, 2**70, -(2**70), np.int64(-3), np.uint64(2**64 - 1)]


def test_any_integer_is_a_seed():
    found = [pit(normal(), points(N, D), "scale", generator=seed) for seed in SEEDS]
    for seed, z in zip(SEEDS, found, strict=True):
        assert torch.equal(pit(normal(), points(N, D), "scale", generator=int(seed)), z)
    # 2^64 - 1 is there twice; otherwise different seeds give different draws.
    assert len({tuple(z.flatten().tolist()) for z in found}) == len(SEEDS) - 1


BAD_SIZES = [(1, ["at least 2", "got 1"]), (0, ["got 0"]), (-5, ["got -5"])]
BAD_SIZES += [(10.0, ["float"]), ("10", ["str"]), (True, ["bool"]), (None, ["NoneType"])]


@pytest.mark.parametrize("call", SAMPLING.values(), ids=SAMPLING)
def test_bad_numbers_of_samples(call):
    dist = student_copula(N, dim=D)
    for size, words in BAD_SIZES:
        refuses(["n_samples", *words], call, dist, points(N, D) + 1, n_samples=size)


# Support

OUTSIDE = [
    ("exponential", Independent(Exponential(points(N, D) + 1), 1), points(N, D) - 1),
    ("dirichlet", Dirichlet(points(N, D) + 1), points(N, D) + 1),
    ("poisson", Independent(Poisson(points(N, D) + 1), 1), points(N, D) + 0.5),
]


@pytest.mark.parametrize(("dist", "y"), [c[1:] for c in OUTSIDE], ids=[c[0] for c in OUTSIDE])
def test_observations_outside_of_the_support_have_the_lowest_density(dist, y):
    # Below all S = 20 samples: Z = U / 21.
    assert pit(dist, y, "hdr", n_samples=20, generator=0).max() < 1 / 21
    refuses(["y", "support"], nll, dist, y)


def test_an_ensemble_has_no_density():
    dist = Ensemble(torch.randn(10, N, D))
    refuses(["Ensemble", "density"], nll, dist, points(N, D))


def test_a_distribution_may_have_no_density():
    refuses(["Nothing", "log_prob", "energy_score"], nll, Nothing((N,), (D,)), points(N, D))


# Pre-ranks that misbehave

BAD_PRERANKS = [
    ("a number per pool", lambda y: y.sum(), ["<lambda>", "(101, 6, 3)", "()"]),
    ("rows lost", lambda y: y.mean(1), ["<lambda>", "(101, 6, 3)", "(101, 3)"]),
    ("axis too many", lambda y: y[..., None], ["<lambda>", "(101, 6, 3)", "(101, 6, 3, 1)"]),
    ("no components", lambda y: y[..., :0], ["<lambda>", "(101, 6, 0)"]),
    ("integers", lambda y: (y > 0).sum(-1), ["<lambda>", "int64"]),
    ("booleans", lambda y: y[..., 0] > 0, ["<lambda>", "bool"]),
    ("numpy", lambda y: y.detach().numpy().sum(-1), ["<lambda>", "float64"]),
    ("a number", lambda y: 1.0, ["<lambda>", "float"]),
    ("None", lambda y: None, ["<lambda>", "NoneType"]),
]
BAD_PRERANKS += [
    ("NaN", lambda y: y.sum(-1) * NAN, ["<lambda>", "NaN"]),
    ("NaN for some", lambda y: (y.sum(-1) - 1).sqrt(), ["<lambda>", "NaN"]),
]
WITH_PRERANK = {
    "pit": pit,
    "diagnose": lambda dist, y, p: diagnose(dist, y, preranks=p),
    "update": lambda dist, y, p: update(p)(dist, y),
    "smooth_pit": smooth_pit,
}


@pytest.mark.parametrize("call", WITH_PRERANK.values(), ids=WITH_PRERANK)
def test_pre_ranks_that_return_something_else(call):
    for _, function, words in BAD_PRERANKS:
        refuses(words, call, normal(), points(N, D), function)


def test_infinite_pre_ranks_have_ranks_but_no_gradient():
    def infinite(y):
        return y.sum(-1) * 0 + INF

    z = pit(normal(), points(N, D), infinite, generator=0)
    assert bool(((z >= 0) & (z <= 1)).all())  # all tied
    refuses(["infinite", "NaN"], smooth_pit, normal(), points(N, D), infinite)


@pytest.mark.parametrize("name", ["average_rank", "band_depth", "threshold_exceedance"])
def test_counts_cannot_be_trained_through(name):
    refuses([name, "no gradient", "copula"], smooth_pit, normal(), points(N, D), name)


# Options


def compare_twice(dist, y, **options):
    return prerank.compare(dist, dist, y, preranks="scale", **options)


def where(given):
    return lambda dist, y, **options: prerank.diagnose_where(dist, y, **given | options)


OPTIONS = [
    ("p", variogram_score, {"p": 0.0}, ["p must be positive", "0.0"]),
    ("p negative", variogram_score, {"p": -1}, ["p must be positive", "-1"]),
    ("p NaN", variogram_score, {"p": NAN}, ["p must be positive"]),
    ("p infinite", variogram_score, {"p": INF}, ["p must be positive", "finite", "inf"]),
    ("p text", variogram_score, {"p": "a"}, ["p must be a number", "str"]),
    ("weights", variogram_score, {"weights": points(2, 2)}, ["weights", "(3, 3)", "(2, 2)"]),
    ("weights vector", variogram_score, {"weights": [1, 2, 3]}, ["weights", "(3, 3)", "(3,)"]),
    ("weights < 0", variogram_score, {"weights": points(3, 3) - 1}, ["weights", "non-negative"]),
    ("weights NaN", variogram_score, {"weights": points(3, 3) * NAN}, ["weights", "NaN"]),
    ("weights text", variogram_score, {"weights": "none"}, ["weights"]),
    ("weights meta", variogram_score, {"weights": torch.ones(3, 3, device="meta")}, ["weights"]),
    ("weights int", variogram_score, {"weights": torch.ones(3, 3).int()}, ["weights", "int32"]),
    ("estimator", energy_score, {"estimator": "qd"}, ["estimator", "qd", "fair", "nrg"]),
    ("estimator None", energy_score, {"estimator": None}, ["estimator", "None"]),
    ("scale D", diagnose, {"scale": [1.0, 1.0]}, ["scale", "(2,)", "3 targets"]),
    ("scale number", diagnose, {"scale": 2.0}, ["scale", "3 targets"]),
    ("scale zero", diagnose, {"scale": [1.0, 0.0, 1.0]}, ["scale", "positive"]),
    ("scale negative", diagnose, {"scale": [1.0, -1.0, 1.0]}, ["scale", "positive"]),
    ("scale NaN", diagnose, {"scale": [1.0, NAN, 1.0]}, ["scale", "NaN"]),
    ("scale text", diagnose, {"scale": "auto"}, ["scale"]),
    ("scale meta", diagnose, {"scale": torch.ones(D, device="meta")}, ["scale", "meta"]),
    ("preranks", diagnose, {"preranks": "marginl"}, ["marginl", "marginal"]),
    ("preranks empty", diagnose, {"preranks": []}, ["prerank", "empty"]),
    ("preranks twice", diagnose, {"preranks": "hdr+hdr"}, ["preranks", "twice", "hdr"]),
    ("levels", diagnose, {"levels": 1}, ["levels", "at least 2"]),
    ("levels float", diagnose, {"levels": 10.0}, ["levels", "float"]),
    ("n_null", diagnose, {"n_null": 0}, ["n_null", "at least 1"]),
    ("n_null negative", diagnose, {"n_null": -1}, ["n_null", "at least 1"]),
    ("n_null NaN", diagnose, {"n_null": NAN}, ["n_null", "float"]),
    ("n_null text", diagnose, {"n_null": "x"}, ["n_null", "str"]),
    ("time ragged", diagnose, {"time": [[1, 2], [1]]}, ["time", "different lengths"]),
    ("cluster ragged", diagnose, {"cluster": [[1, 2], [1]]}, ["cluster", "different lengths"]),
    ("names three", compare_twice, {"names": ("a", "b", "b")}, ["names", "3 names", "2"]),
    ("names equal", compare_twice, {"names": ("a", "a")}, ["names", "different"]),
    ("names None", compare_twice, {"names": None}, ["names", "NoneType"]),
    ("names lists", compare_twice, {"names": ([1], [2])}, ["names", "texts"]),
    ("level text", compare_twice, {"level": "x"}, ["level", "str"]),
    ("level 1", compare_twice, {"level": 1}, ["level", "below 1"]),
    ("inputs ragged", where({}), {"X": [[1, 2], [1]]}, ["X", "different lengths"]),
    ("names number", where({"X": points(N, D)}), {"names": 5}, ["names", "int"]),
    ("names text", where({"X": points(N, D)}), {"names": "abc"}, ["names", "list of texts"]),
    ("lead", lambda d, y, **o: prerank.Monitor(**o).update(d, y), {"lead": 10**30}, ["lead"]),
]


@pytest.mark.parametrize("model", [1, -1, "x", None])
def test_a_predictor_that_is_not_there(model):
    found = diagnose(normal(), points(N, D), n_null=10)
    for call in (found.verdict, found.displays, lambda model: found.within(0.3, model=model)):
        refuses(["model"], call, model=model)


def test_large_seeds_are_seeds():
    y = torch.randn(20, D, dtype=torch.float64)
    one, two = multivariate_normal(20, dim=D), multivariate_normal(20, dim=D)
    tables = [prerank.compare(one, two, y, generator=10**30).table for _ in range(2)]
    pd.testing.assert_frame_equal(*tables)


@pytest.mark.parametrize(
    ("call", "options", "words"), [c[1:] for c in OPTIONS], ids=[c[0] for c in OPTIONS]
)
def test_bad_options(call, options, words):
    refuses(words, call, normal(), points(N, D), **options)


def test_crps_checks_its_estimator():
    # With a closed form too, where the estimator does not matter.
    for dist in (Ensemble(torch.randn(5, N, D)), normal(), gaussian_mixture(N, dim=D)):
        refuses(["estimator", "qd"], crps, dist, points(N, D), estimator="qd")


def test_bad_tau():
    for tau in (0.0, -1.0, NAN, INF):
        refuses(["tau", str(tau)], smooth_pit, normal(), points(N, D), "scale", tau=tau)
    for tau in ("a", None, True, [1.0]):
        words = ["tau", "number", type(tau).__name__]
        refuses(words, smooth_pit, normal(), points(N, D), "scale", tau=tau)


@pytest.mark.parametrize(
    "call",
    [
        lambda spec: pit(normal(), points(N, D), spec),
        lambda spec: smooth_pit(normal(), points(N, D), spec),
        ProjectedCalibrationError,
    ],
    ids=["pit", "smooth_pit", "ProjectedCalibrationError"],
)
def test_bad_pre_ranks(call):
    for spec in ("margnal", "", None, 3, [], Marginal):
        refuses(["prerank"], call, spec)


def test_metric_without_a_batch():
    metric = ProjectedCalibrationError("scale")
    refuses(["update"], metric.compute)


# Constructors

EYE = torch.eye(D).double().expand(N, 2, D, D)


def mixture_arguments(**changed):
    return {"logits": points(N, 2), "loc": points(N, 2, D), "scale_tril": EYE} | changed


def changed_factor(value, row, column):
    factor = EYE.clone()
    factor[0, 0, row, column] = value
    return factor


BAD_MIXTURES = [
    ("K", {"logits": points(N, 3)}, ["(6, 3)", "(6, 2, 3)", "(6, 2, 3, 3)"]),
    ("D", {"loc": points(N, 2, D + 1)}, ["(6, 2)", "(6, 2, 4)", "(6, 2, 3, 3)"]),
    ("not square", {"scale_tril": EYE[..., :2]}, ["(6, 2, 3, 2)"]),
    ("N", {"loc": points(N + 1, 2, D)}, ["(6, 2)", "(7, 2, 3)"]),
    ("no components", {"logits": points(N, 0), "loc": points(N, 0, D)}, ["(6, 0)", "(6, 0, 3)"]),
    ("no targets", {"loc": points(N, 2, 0), "scale_tril": points(N, 2, 0, 0)}, ["(6, 2, 0)"]),
    ("number", {"logits": torch.tensor(1.0)}, ["()"]),
    ("NaN logits", {"logits": points(N, 2) * NAN}, ["logits", "NaN"]),
    ("infinite loc", {"loc": points(N, 2, D) + INF}, ["loc", "infinite"]),
    ("NaN factor", {"scale_tril": changed_factor(NAN, 1, 0)}, ["scale_tril", "NaN"]),
    ("zero diagonal", {"scale_tril": changed_factor(0.0, 1, 1)}, ["scale_tril", "positive"]),
    ("negative diagonal", {"scale_tril": changed_factor(-1.0, 1, 1)}, ["scale_tril", "positive"]),
    ("covariance", {"scale_tril": changed_factor(0.5, 0, 1)}, ["scale_tril", "triangular"]),
    ("integers", {"logits": torch.zeros(N, 2, dtype=torch.int64)}, ["logits", "int64"]),
    ("half", {"loc": torch.zeros(N, 2, D, dtype=torch.float16)}, ["loc", "float16"]),
    ("device", {"logits": torch.empty(N, 2, device="meta")}, ["logits", "meta", "cpu"]),
    ("strings", {"loc": "zero"}, ["loc"]),
    ("ragged", {"loc": [[[1.0], [1.0, 2.0]]]}, ["loc", "rectangular"]),
    ("None", {"scale_tril": None}, ["scale_tril"]),
]


@pytest.mark.parametrize(
    ("changed", "words"), [c[1:] for c in BAD_MIXTURES], ids=[c[0] for c in BAD_MIXTURES]
)
def test_bad_mixtures(changed, words):
    GaussianMixture(**mixture_arguments())
    refuses(words, GaussianMixture, **mixture_arguments(**changed))


BAD_ENSEMBLES = [
    ("one sample", points(1, N, D), None, ["samples", "(1, 6, 3)", "at least 2"]),
    ("no sample axis", points(N, D), None, ["samples", "(6, 3)", "(S, ..., N, D)"]),
    ("vector", points(N), None, ["samples", "(6,)"]),
    ("empty", points(10, 0, D), None, ["samples", "(10, 0, 3)"]),
    ("NaN", points(10, N, D) * NAN, None, ["samples", "NaN"]),
    ("infinite", points(10, N, D) + INF, None, ["samples", "infinite"]),
    ("integers", torch.zeros(10, N, D).long(), None, ["samples", "int64"]),
    ("half", torch.zeros(10, N, D).half(), None, ["samples", "float16", "samples.float()"]),
    ("bfloat", torch.zeros(10, N, D).bfloat16(), None, ["samples", "bfloat16"]),
    ("strings", np.full((10, N, D), "a"), None, ["samples"]),
    ("ragged", [[[1.0, 2.0]], [[1.0]]], None, ["samples", "rectangular"]),
    ("distribution", Normal(0.0, 1.0), None, ["samples"]),
    ("None", None, None, ["samples"]),
    ("meta", torch.empty(10, N, D, device="meta"), None, ["samples", "meta"]),
    ("weights short", points(10, N, D), points(9), ["weights", "(9,)", "(10, 6, 3)"]),
    ("weights of rows", points(10, N, D), points(N, 10), ["weights", "(6, 10)", "(10, 6)"]),
    ("weights negative", points(10, N, D), points(10) - 1, ["weights", "non-negative"]),
    ("weights zero", points(10, N, D), points(10), ["weights", "positive"]),
    ("weights NaN", points(10, N, D), points(10) * NAN, ["weights", "NaN"]),
    ("weights infinite", points(10, N, D), points(10) + INF, ["weights", "infinite"]),
    ("weights integers", points(10, N, D), torch.ones(10).long(), ["weights", "int64"]),
    ("weights text", points(10, N, D), "equal", ["weights"]),
    ("weights device", points(10, N, D), torch.ones(10, device="meta"), ["weights", "meta", "cpu"]),
]


@pytest.mark.parametrize(
    ("samples", "weights", "words"),
    [c[1:] for c in BAD_ENSEMBLES],
    ids=[c[0] for c in BAD_ENSEMBLES],
)
def test_bad_ensembles(samples, weights, words):
    refuses(words, Ensemble, samples, weights)


@pytest.mark.parametrize("shape", [(), (N, D + 1), (N + 1, D), (2, 1, D + 1)])
def test_densities_of_points_that_do_not_fit(shape):
    dist = gaussian_mixture(N, dim=D)
    refuses(["value", str(shape), "(3,)"], dist.log_prob, points(*shape))
    refuses(["value", "NaN"], dist.log_prob, points(N, D) * NAN)


# PITs

BAD_PITS = [
    ("vector", points(N), ["z", "(6,)", "z[:, None]"]),
    ("number", 0.5, ["z", "(..., N, J)", "()"]),
    ("empty", points(0, 1), ["z", "(0, 1)"]),
    ("no components", points(N, 0), ["z", "(6, 0)"]),
    ("NaN", with_value(NAN), ["z", "NaN"]),
    ("infinite", with_value(INF), ["z", "infinite"]),
    ("above 1", with_value(1.001), ["z", "[0, 1]"]),
    ("below 0", with_value(-0.001), ["z", "[0, 1]"]),
    ("integers", torch.zeros(N, 1).long(), ["z", "int64"]),
    ("strings", [["a"]] * N, ["z"]),
    ("ragged", [[0.1, 0.2], [0.1]], ["z", "rectangular"]),
    ("None", None, ["z"]),
    ("meta", torch.empty(N, 1, device="meta"), ["z", "meta"]),
]


@pytest.mark.parametrize("call", [pce, reliability_curve, pit_histogram])
def test_bad_pits(call):
    for _, z, words in BAD_PITS:
        refuses(words, call, z)


COUNTS = [
    (pce, (points(N, 1),), "levels", 2),
    (reliability_curve, (points(N, 1),), "levels", 2),
    (pit_histogram, (points(N, 1),), "bins", 1),
    (pce_floor, (10,), "levels", 2),
    (null_pce, (10,), "levels", 2),
    (pce_floor, (), "n", 1),
    (null_pce, (), "n", 1),
    (null_pce, (10,), "n_null", 1),
]


@pytest.mark.parametrize(
    ("call", "arguments", "name", "minimum"),
    COUNTS,
    ids=[f"{call.__name__} {name}" for call, _, name, _ in COUNTS],
)
def test_bad_counts(call, arguments, name, minimum):
    call(*arguments, **{name: minimum})  # the least number that will do
    call(*arguments, **{name: np.int64(minimum + 3)})
    for value in (minimum - 1, -3):
        refuses([name, f"at least {minimum}", str(value)], call, *arguments, **{name: value})
    # Results are cached: True and 2.0 must not pass for the 1 and 2 that came before.
    for value in (2.5, NAN, "2", None, torch.tensor(5), 1j, True, float(minimum), [1]):
        refuses([name, type(value).__name__], call, *arguments, **{name: value})


# What must work

NUMPY = {
    "integers": lambda y: np.rint(y).astype(np.int64),
    "small integers": lambda y: np.rint(y).astype(np.int8),
    "unsigned": lambda y: np.rint(np.abs(y)).astype(np.uint16),
    "booleans": lambda y: y > 0,
    "lists": lambda y: y.tolist(),
    "tuples": lambda y: tuple(map(tuple, y.tolist())),
    "objects": lambda y: y.astype(object),
    "frame": lambda y: pd.DataFrame(y, columns=["a", "b", "c"]),
    "frame of integers": lambda y: pd.DataFrame(np.rint(y).astype(int)),
    "frame of both": lambda y: pd.DataFrame(y).astype({0: "float32"}),
    "frame of nullable": lambda y: pd.DataFrame(y).convert_dtypes(),
    "fortran order": np.asfortranarray,
    "every second row": lambda y: np.repeat(y, 2, axis=0)[::2],
    "columns of more": lambda y: np.concatenate([y, y], 1)[:, :3],
    "negative stride": lambda y: y[::-1, ::-1],
    "big endian": lambda y: y.astype(">f8"),
    "transposed tensor": lambda y: torch.from_numpy(y.T.copy()).T,
    "list of tensors": lambda y: list(torch.from_numpy(y)),
}


def read_only(y):
    y = y.copy()
    y.setflags(write=False)
    return y


CONTAINERS = NUMPY | {"read-only": read_only}
# Every container once, and those that a pipeline is likely to pass through every entry.
USUAL = ["integers", "lists", "frame"]


@pytest.mark.parametrize(
    ("name", "container"),
    [("pit scale", container) for container in CONTAINERS]
    + [(name, c) for name in ("diagnose", "nll", "energy_score", "crps") for c in USUAL],
)
def test_numbers_in_any_container(name, container):
    y = np.random.default_rng(0).normal(size=(N, D))
    given_, dist = CONTAINERS[container](y), normal()
    plain = given_
    if isinstance(given_, list) and isinstance(given_[0], torch.Tensor):
        plain = torch.stack(given_)
    if isinstance(plain, torch.Tensor):
        plain = plain.numpy()
    expected = torch.from_numpy(np.array(plain, dtype=np.float64))
    values = [
        ENTRIES[name](dist, value, **({} if name == "nll" else {"generator": 0}))
        for value in (given_, expected)
    ]
    if name == "diagnose":
        values = [torch.cat(list(found.pits.values()), -1) for found in values]
    assert values[0].dtype == torch.float64
    assert torch.isfinite(values[0]).all()
    torch.testing.assert_close(*values, rtol=0, atol=0)


def test_inputs_are_left_alone():
    dist, y = multivariate_normal(2 * N, dim=D), np.random.default_rng(0).normal(size=(2 * N, D))
    before = y.copy()
    for call in ENTRIES.values():
        call(dist, y)
    diagnose(dist, y, scale=[1.0, 2.0, 3.0])
    np.testing.assert_array_equal(y, before)


MAKERS = {
    "mixture": lambda dtype: GaussianMixture(
        torch.zeros(N, 2, dtype=dtype), torch.zeros(N, 2, D, dtype=dtype), EYE.to(dtype)
    ),
    "normal": lambda dtype: MultivariateNormal(
        torch.zeros(N, D, dtype=dtype), torch.eye(D, dtype=dtype)
    ),
    "independent": lambda dtype: Independent(Normal(torch.zeros(N, D, dtype=dtype), 1.0), 1),
    "ensemble": lambda dtype: Ensemble(torch.randn(20, N, D, dtype=dtype)),
    "weighted ensemble": lambda dtype: Ensemble(
        torch.randn(20, N, D, dtype=dtype), np.linspace(1, 2, 20)
    ),
}


@pytest.mark.parametrize(
    ("dtype", "observed"),
    [(torch.float32, torch.float64), (torch.float64, torch.float32), (torch.float32, np.int64)],
)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_dtype_is_that_of_the_prediction(make, dtype, observed):
    dist = make(dtype)
    if isinstance(observed, torch.dtype):
        y = torch.ones(N, D, dtype=observed)
    else:
        y = np.ones((N, D), observed)
    for prerank_ in ("marginal", "scale", "dependency", "pca", "copula", "energy_score"):
        assert pit(dist, y, prerank_, generator=0).dtype == dtype
        assert smooth_pit(dist, y, prerank_, generator=0).dtype == dtype
    for score in (energy_score, variogram_score, crps):
        assert score(dist, y).dtype == dtype
    if not isinstance(dist, Ensemble):
        assert nll(dist, y).dtype == dtype
    assert pce(pit(dist, y, "scale")).dtype == dtype


# Random input

FINITE = st.floats(-1e6, 1e6, width=32)
ANY = st.one_of(FINITE, st.sampled_from([NAN, INF, -INF, 0.0, 1.0]))
SIZES = st.integers(0, 4)
DTYPES = ["float32", ">f8", "int64", "int8", "bool", "object", "complex64", "U3"]
TENSOR_DTYPES = [torch.float32, torch.float64, torch.float64, torch.int64, torch.bool]
NAMES = ["marginal", "location", "scale", "dependency", "pca", "pca(0.8)", "hdr", "copula"]
NAMES += ["multivariate_rank", "average_rank", "band_depth", "energy_score"]


@st.composite
def arrays(draw, shape, values):
    """Arrays or tensors of nearly the wanted shape, usually filled with numbers."""
    if draw(st.sampled_from([False] * 9 + [True])):
        shape = draw(st.lists(SIZES, max_size=4).map(tuple))
    flat = draw(st.lists(values, min_size=math.prod(shape), max_size=math.prod(shape)))
    array = np.array(flat, dtype=np.float64).reshape(shape)
    plain = np.nan_to_num(array, posinf=3, neginf=-3).clip(-100, 100)
    kind = draw(st.sampled_from(["float64", "list", "tensor", "numpy"]))
    if kind == "list":
        return array.tolist()
    if kind == "tensor":
        dtype = draw(st.sampled_from(TENSOR_DTYPES))
        return torch.tensor(array if dtype.is_floating_point else plain, dtype=dtype)
    dtype = "float64" if kind == "float64" else draw(st.sampled_from(DTYPES))
    return (array if np.dtype(dtype).kind in "fO" else plain).astype(dtype)


@settings(max_examples=200)
@given(data=st.data(), values=st.sampled_from([FINITE, ANY]), name=st.sampled_from(NAMES))
def test_any_arrays_give_pits_or_an_error(data, values, name):
    size, rows, dim = (data.draw(st.sampled_from(sizes)) for sizes in ([2, 5], [1, 3], [3, 1]))
    samples = data.draw(arrays((size, rows, dim), values))
    y = data.draw(arrays((rows, dim), values))
    try:
        dist = Ensemble(samples)
        z = pit(dist, y, name, generator=0)
    except PrerankError:
        return
    assert z.shape[:-1] == dist.batch_shape
    assert z.shape[-1] == {"marginal": dist.event_shape[0], "pca": dist.event_shape[0]}.get(
        name, z.shape[-1] if name == "pca(0.8)" else 1
    )
    assert bool(((z >= 0) & (z <= 1)).all())
    assert z.dtype == dist.samples.dtype


@settings(max_examples=60)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_good_arrays_give_pits(data, name):
    size, rows, dim = (data.draw(st.integers(low, 5)) for low in (2, 1, 3))
    dtype = data.draw(st.sampled_from(["float32", "float64", "int64", "int8"]))

    def array(*shape):
        numbers = st.integers(-100, 100)
        flat = data.draw(st.lists(numbers, min_size=math.prod(shape), max_size=math.prod(shape)))
        return np.array(flat).astype(dtype).reshape(shape)

    if name == "hdr":
        dist = MultivariateNormal(
            torch.from_numpy(array(rows, dim)).double(), torch.eye(dim).double()
        )
    else:
        dist = Ensemble(array(size, rows, dim))
    z = pit(dist, array(rows, dim), name, generator=0)
    assert z.shape[0] == rows
    assert bool(((z >= 0) & (z <= 1)).all())
    assert bool(torch.isfinite(pce(z)).all())


def test_every_public_function_is_in_these_tables():
    tested = {pit, smooth_pit, diagnose, nll, energy_score, variogram_score, crps, pce, pce_floor}
    tested |= {reliability_curve, pit_histogram, null_pce, prerank.compare}
    tested |= {ProjectedCalibrationError, GaussianMixture, Ensemble}
    exempt = {prerank.Diagnosis, PrerankError}  # nobody makes these but the package
    # These have tables of their own: test_penalty.py, diagnosis/, recalibration/, estimators/.
    exempt |= {prerank.diagnose_where, prerank.Monitor, prerank.Diagnoser}
    exempt |= {prerank.CalibrationPenalty, prerank.MixtureRegressor, prerank.FlowRegressor}
    exempt |= {prerank.CalibrationHead, prerank.calibrate}
    exempt |= {prerank.load_model}
    public = {getattr(prerank, name) for name in prerank.__all__}
    public = {item for item in public if inspect.isfunction(item) or inspect.isclass(item)}
    assert public - exempt == tested


def test_other_good_distributions_are_not_refused():
    for dist in (independent_normal(2, N, dim=D), gaussian_mixture(2, N, dim=D)):
        z = pit(dist, points(N, D), "marginal")
        assert z.shape == (2, N, D)
