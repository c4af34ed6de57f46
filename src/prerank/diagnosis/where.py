"""Where among the inputs is a forecast miscalibrated, without groups that somebody names?"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.calibration.axes import input_columns
from prerank.calibration.dependent_rows import row_units
from prerank.calibration.regions import FEWEST_ROWS, find_regions
from prerank.defaults import (
    MAX_REGIONS,
    N_PERMUTATIONS,
    N_SAMPLES,
    SCALE,
    SEED,
    SIGNIFICANCE,
)
from prerank.diagnosis.measurement import measured_pits
from prerank.diagnosis.regional_diagnosis import WhereDiagnosis
from prerank.distributions.ensemble import check_unweighted
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_count, as_generator, as_probability
from prerank.preranks import PreRankLike

__all__ = ["diagnose_where", "regions_of_pits"]


def diagnose_where(
    dist: Distribution,
    y: object,
    X: object,
    *,
    preranks: PreRankLike | None = None,
    names: Sequence[str] | None = None,
    n_samples: int = N_SAMPLES,
    scale: object = SCALE,
    n_null: int = N_PERMUTATIONS,
    alpha: float = SIGNIFICANCE,
    max_regions: int = MAX_REGIONS,
    time: object = None,
    cluster: object = None,
    generator: torch.Generator | int | None = SEED,
) -> WhereDiagnosis:
    """Find regions of the inputs in which calibration differs from that of the other rows.

    Null hypothesis: the PITs are independent of the inputs. A forecast may be miscalibrated in the
    same way everywhere, which is the subject of `diagnose`. The p-value compares the best region
    with the best ones after rows were permuted, so that it accounts for the search. If rows depend
    on each other, name their times or clusters: whole times are shifted, whole clusters permuted.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`; samples must have equal weights.
        y: observations `(N, D)`; a DataFrame's columns name the targets.
        X: inputs `(N, p)`, not only those that the predictor used: an array, a tensor or a
            DataFrame. Texts and categories are levels; a missing value is a level of its own.
        preranks: which ones; by default all of the paper's that apply.
        names: of the inputs; by default those of the DataFrame, or x0, x1, ...
        n_samples: draws per row for pre-ranks without a closed form.
        scale: divisors of the targets, as in `diagnose`.
        n_null: number of permutations; the smallest p-value is one over n_null + 1.
        alpha: regions are reported up to this p-value.
        max_regions: largest number of regions.
        time: of each row, `(N,)`: rows of the same and of neighbouring times may depend on each
            other. The series of PITs is taken to be stationary.
        cluster: label of each row, `(N,)`: rows of one cluster may depend on each other, those of
            different clusters must not.
        generator: a generator or seed; None draws from torch's global state.

    Returns:
        A `WhereDiagnosis` with `.p_value`, `.regions`, `.plot()` and `.weights`; `print` shows it
        in words.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> g = torch.Generator().manual_seed(0)
        >>> humidity = 100 * torch.rand(1000, 1, generator=g)
        >>> y = torch.randn(1000, 2, generator=g)
        >>> y[humidity[:, 0] > 80, 1] *= 2
        >>> dist = MultivariateNormal(torch.zeros(1000, 2), torch.eye(2))
        >>> print(diagnose_where(dist, y, humidity, names=["humidity"], n_null=99))
        Calibration differs over the inputs (p = 0.010).
        - humidity above 78.95 (216 rows, 21.6 %): predictions too narrow in y1.
    """
    check_unweighted(dist, "search")
    pits, targets = measured_pits(
        dist, y, preranks=preranks, n_samples=n_samples, scale=scale, generator=generator
    )
    return regions_of_pits(
        pits,
        X,
        targets=targets,
        names=names,
        n_null=n_null,
        alpha=alpha,
        max_regions=max_regions,
        time=time,
        cluster=cluster,
        generator=generator,
    )


def regions_of_pits(
    pits: Mapping[str, Tensor],
    X: object,
    *,
    targets: Sequence[str],
    names: Sequence[str] | None = None,
    n_null: int = N_PERMUTATIONS,
    alpha: float = SIGNIFICANCE,
    max_regions: int = MAX_REGIONS,
    time: object = None,
    cluster: object = None,
    generator: torch.Generator | int | None = SEED,
) -> WhereDiagnosis:
    """`diagnose_where` for PITs `(N, J)` that are already there, such as `Diagnosis.pits`.

    Args:
        pits: by the label of the pre-rank.
        X: inputs `(N, p)`.
        targets: names of the targets.
        names: of the inputs.
        n_null: number of permutations.
        alpha: regions are reported up to this p-value.
        max_regions: largest number of regions.
        time: of each row.
        cluster: of each row.
        generator: a generator or seed.
    """
    shape = next(iter(pits.values())).shape
    if len(shape) != 2:
        raise ShapeError(
            f"regions are of the rows of one predictor, of batch_shape (N,): got "
            f"{tuple(shape[:-1])}"
        )
    if any(bool(z.isnan().any()) for z in pits.values()):
        raise InputError(
            "pits has NaN, where values were missing: regions need all values, so leave those rows "
            "out of the forecasts, the observations and X"
        )
    columns = input_columns(X, names, shape[0])
    if all(column.is_constant for column in columns):
        raise InputError("X has no input that varies: there is nowhere to look")
    if shape[0] < FEWEST_ROWS:
        raise InputError(f"{shape[0]} rows are too few for regions: {FEWEST_ROWS} are needed")
    alpha = as_probability(alpha, "alpha")
    dependence = row_units(time, cluster, shape[0])
    search = find_regions(
        pits,
        columns,
        n_null=as_count(n_null, "n_null", minimum=1),
        alpha=alpha,
        most=as_count(max_regions, "max_regions", minimum=1),
        dependence=dependence,
        generator=as_generator(generator, "permute"),
    )
    return WhereDiagnosis(search, dict(pits), columns, tuple(targets), dependence)
