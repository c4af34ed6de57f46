"""From text, callables and lists to pre-ranks."""

import difflib
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from torch import Tensor
from torch.distributions import Distribution

from prerank.errors import InputError, InputTypeError, NotApplicableError
from prerank.preranks.base import Custom, PreRank
from prerank.preranks.distances import MinimumSpanningTree, ReferenceDistance
from prerank.preranks.linear import PCA, Location, Marginal
from prerank.preranks.pointwise import HDR, Dependency, Scale, ThresholdExceedance
from prerank.preranks.pooled import (
    AverageRank,
    BandDepth,
    Copula,
    EnergyScoreRank,
    MultivariateRank,
)
from prerank.preranks.sample_density import SampleDensity
from prerank.preranks.variograms import Isotropy, Variogram

__all__ = ["CLASSIC", "PAPER", "PreRankLike", "applicable", "bare_labels", "is_all", "parse"]

OneTerm = str | PreRank | Callable[[Tensor], Tensor]
PreRankLike = OneTerm | Sequence[OneTerm]
"""What `parse` reads: text, a pre-rank, a function of the points, or a list of these."""

PAPER: tuple[PreRank, ...] = (Marginal(), Location(), Scale(), Dependency(), PCA(), HDR(), Copula())
"""Those of the paper, which `"all"` stands for and `prerank.diagnose` looks at by default."""

CLASSIC: tuple[PreRank, ...] = (MultivariateRank(), AverageRank(), BandDepth(), EnergyScoreRank())
"""Those that the literature on ensemble forecasts uses."""

_SINGLE = (ThresholdExceedance(), MinimumSpanningTree(), ReferenceDistance(), SampleDensity())
_KNOWN: dict[str, type[PreRank]] = {p.name: type(p) for p in (*PAPER, *CLASSIC, *_SINGLE)}
_OBJECTS = {
    Variogram.name: "Variogram.at_lags([1], shape=D)",
    Isotropy.name: "Isotropy((rows, columns))",
}
"""Pre-ranks that text cannot describe, since they need the grid of the targets."""

_PLUS = re.compile(r"\+(?![^()]*\))")  # not the sign inside 1e+20
_TERM = re.compile(r"([A-Za-z_]\w*)\s*(?:\(([^()]*)\))?")
_LONGEST = 1000  # characters of a description: reading takes a time of their square


def bare_labels(spec: str) -> list[str]:
    """Names in a description, without their arguments.

    Example:
        >>> bare_labels("pca(0.8)+hdr")
        ['pca', 'hdr']
    """
    return [text.partition("(")[0] for text in _PLUS.split(spec)]


def is_all(spec: object) -> bool:
    """Whether a description is `"all"`, or what `parse` makes of it."""
    if isinstance(spec, list | tuple) and len(spec) == 1:
        return is_all(spec[0])
    return spec is PAPER or (isinstance(spec, str) and spec.strip().lower() == "all")


def applicable(spec: PreRankLike, dist: Distribution) -> tuple[tuple[PreRank, ...], dict[str, str]]:
    """Turn a description into the pre-ranks to use for a distribution.

    Args:
        spec: see `parse`.
        dist: `event_shape (D,)`.

    Returns:
        The terms, in order, and the reason for each one of `"all"` that does not apply and is left
        out. One that is named raises where it is used.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> import torch
        >>> terms, skipped = applicable("all", MultivariateNormal(torch.zeros(5, 2), torch.eye(2)))
        >>> len(terms), list(skipped)
        (6, ['dependency'])
    """
    if not is_all(spec):
        return parse(spec), {}
    terms: tuple[PreRank, ...] = ()
    skipped = {}
    for prerank in PAPER:
        try:
            prerank.check(dist)
        except NotApplicableError as reason:
            skipped[prerank.label] = str(reason)
        else:
            terms += (prerank,)
    return terms, skipped


def parse(spec: PreRankLike) -> tuple[PreRank, ...]:
    """Turn a description into pre-ranks.

    Args:
        spec: text such as `"marginal+hdr"`, `"pca(0.8)+copula"`, `"dependency(2)"`; a pre-rank;
            a function `rho(y)` from `(..., D)` to `(...)` or `(..., J)`; or a list of these.
            `"all"` is every pre-rank of the paper.

    Returns:
        The terms, in order. Those of `"all"` need not apply to a distribution: see `applicable`.

    Example:
        >>> parse("pca(0.8)+hdr")
        (PCA(components=0.8), HDR())
    """
    if is_all(spec):
        return PAPER
    if isinstance(spec, PreRank):
        return (spec,)
    if isinstance(spec, str):
        if len(spec) > _LONGEST:
            raise InputError(f"prerank has {len(spec)} characters: {_LONGEST} are the most")
        return tuple(_term(text, spec) for text in _PLUS.split(spec))
    if isinstance(spec, type):
        raise InputTypeError(f"prerank is a class: pass an instance, {spec.__name__}(...)")
    if isinstance(spec, Sequence):
        terms = tuple(term for item in spec for term in parse(item))
        if not terms:
            raise InputError("prerank is empty: name at least one, such as 'marginal'")
        return terms
    if callable(spec):
        return (Custom(spec),)
    raise InputTypeError(
        "prerank must be text, a pre-rank, a callable or a list of these, "
        f"got {type(spec).__name__}"
    )


def _term(text: str, whole: str) -> PreRank:
    match = _TERM.fullmatch(text.strip())
    if match is None:
        raise InputError(f"cannot read {text!r} in prerank {whole!r}: write name or name(number)")
    name, argument = match[1].lower(), (match[2] or "").strip()
    if name in _OBJECTS:
        raise InputError(
            f"prerank {name!r} needs the grid of the targets: pass an object of prerank.preranks, "
            f"such as {_OBJECTS[name]}"
        )
    if name not in _KNOWN:
        close = difflib.get_close_matches(name, _KNOWN, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise InputError(f"unknown prerank {name!r}.{hint} Known: {', '.join(_KNOWN)}")
    try:
        return _KNOWN[name](*([_number(argument)] if argument else []))
    except TypeError as error:
        raise InputError(f"prerank {name!r} takes no argument, got {text.strip()!r}") from error


def _number(text: str) -> Any:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    raise InputError(f"{text!r} is not a number")
