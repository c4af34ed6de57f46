"""From text to pre-ranks and back, and which of them apply where."""

import dataclasses
import inspect

import pytest
import torch

import prerank.preranks
from prerank import Ensemble, diagnose, pit, smooth_pit
from prerank.errors import InputError, InputTypeError, NotApplicableError
from prerank.preranks import (
    CLASSIC,
    HDR,
    PAPER,
    PCA,
    AverageRank,
    BandDepth,
    Conditional,
    Copula,
    Custom,
    Dependency,
    EnergyScoreRank,
    Location,
    Marginal,
    MultivariateRank,
    PreRank,
    Projection,
    Scale,
    ThresholdExceedance,
    parse,
)
from truths import PRERANKS, gaussian_mixture, labels, multivariate_normal, skewness

ACCEPTED = [
    ("marginal", (Marginal(),)),
    ("location", (Location(),)),
    ("scale", (Scale(),)),
    ("dependency", (Dependency(1),)),
    ("pca", (PCA(),)),
    ("hdr", (HDR(),)),
    ("copula", (Copula(),)),
    ("multivariate_rank", (MultivariateRank(),)),
    ("average_rank", (AverageRank(),)),
    ("band_depth", (BandDepth(),)),
    ("energy_score", (EnergyScoreRank(),)),
    ("threshold_exceedance", (ThresholdExceedance(0.0),)),
    ("pca(2)", (PCA(2),)),
    ("pca(0.8)", (PCA(0.8),)),
    ("dependency(3)", (Dependency(3),)),
    ("threshold_exceedance(-1.5)", (ThresholdExceedance(-1.5),)),
    ("threshold_exceedance(1e-3)", (ThresholdExceedance(0.001),)),
    ("threshold_exceedance(+2)", (ThresholdExceedance(2),)),
    ("hdr+threshold_exceedance(1e+20)+scale", (HDR(), ThresholdExceedance(1e20), Scale())),
    ("Marginal", (Marginal(),)),
    ("HDR", (HDR(),)),
    ("  pca ( 0.8 )  ", (PCA(0.8),)),
    ("marginal+hdr", (Marginal(), HDR())),
    (" pca(0.8) + hdr + copula ", (PCA(0.8), HDR(), Copula())),
    (Scale(), (Scale(),)),
    (skewness, (Custom(skewness),)),
    (["marginal", "hdr"], (Marginal(), HDR())),
    (("marginal+hdr", Scale(), skewness), (Marginal(), HDR(), Scale(), Custom(skewness))),
    ([["marginal"], ["hdr"]], (Marginal(), HDR())),
    (PAPER, PAPER),
]


@pytest.mark.parametrize(("spec", "expected"), ACCEPTED)
def test_parse(spec, expected):
    assert parse(spec) == expected


REFUSED = [
    ("margnal", InputError, ["unknown prerank 'margnal'. Did you mean 'marginal'? Known: "]),
    ("copla+hdr", InputError, ["unknown prerank 'copla'. Did you mean 'copula'? Known: "]),
    ("qqq", InputError, ["unknown prerank 'qqq'. Known: marginal, location"]),
    ("", InputError, ["prerank"]),
    ("   ", InputError, ["prerank"]),
    ("marginal+", InputError, ["marginal+"]),
    ("+hdr", InputError, ["+hdr"]),
    ("marginal++hdr", InputError, ["marginal++hdr"]),
    ("marginal hdr", InputError, ["marginal hdr"]),
    ("pca(0.8", InputError, ["pca(0.8"]),
    ("pca(two)", InputError, ["two", "not a number"]),
    ("pca(1, 2)", InputError, ["1, 2", "not a number"]),
    ("pca(0)", InputError, ["pca", "got 0"]),
    ("pca(-1)", InputError, ["pca", "got -1"]),
    ("pca(1.5)", InputError, ["pca", "got 1.5"]),
    ("pca(nan)", InputError, ["pca", "got nan"]),
    ("dependency(0)", InputError, ["lag", "got 0"]),
    ("dependency(1.5)", InputError, ["lag", "got 1.5"]),
    ("marginal(3)", InputError, ["marginal", "takes no argument", "marginal(3)"]),
    ("hdr(0.9)", InputError, ["hdr", "takes no argument"]),
    ([], InputError, ["prerank", "empty"]),
    ((), InputError, ["prerank", "empty"]),
    (["marginal", "margnal"], InputError, ["Did you mean 'marginal'?"]),
    (None, InputTypeError, ["prerank", "NoneType"]),
    (3, InputTypeError, ["prerank", "int"]),
    (["marginal", 3.5], InputTypeError, ["prerank", "float"]),
    (b"marginal", InputTypeError, ["prerank"]),
    ({"marginal"}, InputTypeError, ["prerank", "set"]),
    (Marginal, InputTypeError, ["prerank is a class", "Marginal(...)"]),
    (["hdr", Custom], InputTypeError, ["prerank is a class", "Custom(...)"]),
    ("threshold_exceedance(nan)", InputError, ["threshold", "finite", "nan"]),
    ("threshold_exceedance(1e999)", InputError, ["threshold", "finite", "inf"]),
]


@pytest.mark.parametrize(("spec", "error", "words"), REFUSED)
def test_parse_refuses_what_it_cannot_read(spec, error, words):
    with pytest.raises(error) as caught:
        parse(spec)
    for word in words:
        assert word in str(caught.value)


NAMED = [
    *PAPER,
    *CLASSIC,
    PCA(1),
    PCA(0.8),
    PCA(0.123456789),
    Dependency(2),
    ThresholdExceedance(),
    ThresholdExceedance(2),
    ThresholdExceedance(-0.3),
    ThresholdExceedance(1e-7),
    ThresholdExceedance(1e20),  # prints as 1e+20
]


@pytest.mark.parametrize("prerank", NAMED, ids=labels(NAMED))
def test_labels_can_be_parsed(prerank):
    assert parse(prerank.label) == (prerank,)
    assert parse("+".join([prerank.label, "hdr"])) == (prerank, HDR())


def test_all_labels_together():
    assert parse("+".join(labels(NAMED))) == tuple(NAMED)


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), "a", None, True, 1j])
def test_thresholds_are_finite_numbers(threshold):
    with pytest.raises(InputError, match="threshold must be a finite number") as caught:
        ThresholdExceedance(threshold)
    assert repr(threshold) in str(caught.value)


def test_labels_of_functions():
    assert parse(skewness)[0].label == "skewness"
    assert Custom(skewness, "skew").label == "skew"
    assert parse(torch.nn.Flatten(-1))[0].label == "Flatten"
    assert Projection(torch.ones(1, 2)).label == "projection"


@pytest.mark.parametrize("prerank", PRERANKS, ids=labels(PRERANKS))
def test_pre_ranks_are_frozen_values(prerank):
    twin = dataclasses.replace(prerank)
    assert twin == prerank
    assert hash(twin) == hash(prerank)
    with pytest.raises(dataclasses.FrozenInstanceError):
        prerank.threshold = 1.0
    others = [other for other in PRERANKS if other != prerank]
    assert len(others) == len(PRERANKS) - 1


def test_projections_compare_by_identity():
    vectors = torch.eye(2)
    assert Projection(vectors) == Projection(vectors)
    assert len({Projection(vectors), Projection(vectors), Projection(vectors.clone())}) == 2


def ensemble(dim):
    return Ensemble(torch.randn(5, 4, dim))


# pre-rank, distribution, what is wrong, what to use instead
INAPPLICABLE = [
    ("dependency", multivariate_normal(4, dim=2), "D = 2", "'scale', 'pca' or 'copula'"),
    ("dependency", multivariate_normal(4, dim=1), "D = 1", "'scale', 'pca' or 'copula'"),
    ("dependency", ensemble(2), "D = 2", "'scale', 'pca' or 'copula'"),
    ("scale", multivariate_normal(4, dim=1), "D = 1", "'marginal'"),
    ("dependency(3)", multivariate_normal(4, dim=3), "lag is 3", "at most 2"),
    ("dependency(9)", ensemble(4), "lag is 9", "at most 3"),
    ("pca(5)", multivariate_normal(4, dim=3), "D = 3", "use pca(3)"),
    ("pca(5)", ensemble(3), "D = 3", "use pca(3)"),
    ("hdr", ensemble(3), "samples alone", "'copula' and 'energy_score'"),
]


@pytest.mark.parametrize(
    ("name", "dist", "wrong", "instead"),
    INAPPLICABLE,
    ids=[f"{name}-{wrong}-{i}" for i, (name, _, wrong, _) in enumerate(INAPPLICABLE)],
)
def test_what_does_not_apply_says_what_to_use_instead(name, dist, wrong, instead):
    y = torch.zeros(4, dist.event_shape[0])
    calls = [
        lambda: parse(name)[0].check(dist),
        lambda: pit(dist, y, name),
        lambda: smooth_pit(dist, y, name),
        lambda: pit(dist, y, ["marginal", name]),
        lambda: diagnose(dist, y, preranks=name),
    ]
    for call in calls:
        with pytest.raises(NotApplicableError) as caught:
            call()
        assert wrong in str(caught.value)
        assert instead in str(caught.value)


def test_largest_lag_and_number_of_components_apply():
    dist = gaussian_mixture(4, dim=3)
    z = pit(dist, torch.zeros(4, 3), "dependency(2)+pca(3)", generator=0)
    assert z.shape == (4, 4)


@pytest.mark.parametrize("shape", [(2,), (1, 2), (3, 4)])
def test_projection_has_to_fit_the_targets(shape):
    with pytest.raises(InputError, match="vectors"):
        pit(multivariate_normal(4, dim=3), torch.zeros(4, 3), Projection(torch.ones(shape)))


def concrete(kind):
    """All subclasses in the library that are not abstract."""
    for sub in kind.__subclasses__():
        yield from concrete(sub)
        if not inspect.isabstract(sub) and sub.__module__.startswith("prerank."):
            yield sub


def test_every_prerank_is_public_and_tested_against_truths():
    of_code = {
        Custom,
        Projection,
        Conditional,
    }  # of a function or of directions: tests of their own
    found = set(concrete(PreRank)) - of_code
    assert len(found) >= len((*PAPER, *CLASSIC))
    assert {kind.__name__ for kind in found} <= set(prerank.preranks.__all__)
    assert found == {type(one) for one in PRERANKS} - of_code
