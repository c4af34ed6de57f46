"""What all figures share: bases of displays, colours, names that users give, and panels."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.adapters.pipelines import inner_regressor
from prerank.calibration import DeviationShape, HistogramBand, ReliabilityBand
from prerank.calibration.curves import check_pits
from prerank.defaults import BAND_LEVEL, N_SAMPLES, SEED
from prerank.errors import InputError, ShapeError
from prerank.extras import needed_by
from prerank.inputs import column_names
from prerank.pits import project_pits
from prerank.pits.ranks import WEIGHTED
from prerank.preranks import PreRank, PreRankLike, parse
from prerank.report.wording import reliability_caption

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = [
    "COLOURS",
    "MOST_DRAWN",
    "NAMED",
    "STYLES",
    "Display",
    "PITDisplay",
    "name_lines",
    "short_name",
    "split_axes",
]

# The colours of Okabe and Ito, which readers of all kinds of colour vision tell apart. Seven
# colours and four line styles give 28 pairs before one comes back, and lines differ in grey too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9")
STYLES = ("-", "--", "-.", ":")

NAMED = "named"
"""Mark (`gid`) of what a legend shall name."""

MOST_DRAWN = 16
"""Components of a pre-rank that one figure shows."""

_WIDEST = 16  # characters beside an axis

Share = Literal["none", "all", "row", "col"]


class Display:
    """A result that can be drawn: `plot` takes axes or makes a figure, `caption` says it in words.

    Attributes:
        ax_: the axes, after `plot`.
        figure_: their figure.
    """

    ax_: "Axes"
    figure_: "Figure | SubFigure"

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches at which the writing is legible."""
        return 4.0, 4.0

    @property
    def caption(self) -> str:
        """One sentence on what is seen."""
        raise NotImplementedError

    def plot(self, ax: "Axes | None" = None) -> Any:
        """Draw on the axes, or in a new figure."""
        raise NotImplementedError

    def _place(self, ax: "Axes | None") -> "Axes":
        """The axes that were given, or those of a new figure."""
        if ax is None:
            with needed_by(f"{type(self).__name__}.plot"):
                import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=self.size, layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        return ax


class PITDisplay(Display):
    """What the displays of the PITs of one pre-rank share.

    Args:
        values: what is drawn of one predictor, `(L, J)`.
        band: where it stays if the forecast is calibrated; None for weighted samples, whose PITs
            are not exactly uniform.
        label: name of the pre-rank.
        names: names of the J components; numbers by default, or the label where J is 1.
        causes: what tests found in each of the J components, in words, empty where that is nothing.
    """

    _FORM = ""  # what is drawn, and its shape
    _ALONE = ""  # name of a single component without a name
    _measured: ClassVar[Callable[..., dict[str, Any]]]  # from PITs and the level of the band

    def __init__(
        self,
        values: Tensor,
        band: ReliabilityBand | HistogramBand | None,
        label: str,
        names: Sequence[str] | None,
        causes: Sequence[str] = (),
    ) -> None:
        if values.dim() != 2:
            raise ShapeError(
                f"a display shows one predictor: {self._FORM}, got {tuple(values.shape)}"
            )
        size = values.shape[1]
        if names is None:
            names = [str(j) for j in range(size)] if size > 1 else [label or self._ALONE]
        if len(names) != size:
            raise ShapeError(f"{len(names)} names for {size} components: {list(names)}")
        if causes and len(causes) != size:
            raise ShapeError(f"{len(causes)} causes for {size} components")
        self.band, self.label, self.names, self.causes = band, label, tuple(names), tuple(causes)
        self._empty = values.isnan().any(0).tolist()  # whose values are all missing

    @cached_property
    def drawn(self) -> list[int]:
        """Numbers of the components that are drawn: all, or those that deviate most."""
        if len(self.names) <= MOST_DRAWN:
            return list(range(len(self.names)))
        return sorted(
            self._deviations().argsort(descending=True, stable=True)[:MOST_DRAWN].tolist()
        )

    def _deviations(self) -> Tensor:
        """How far the PITs of each component are from uniform, `(J,)`."""
        raise NotImplementedError

    @classmethod
    def from_predictions(
        cls,
        dist: Distribution,
        y: object,
        prerank: PreRankLike,
        *,
        n_samples: int = N_SAMPLES,
        generator: torch.Generator | int | None = None,
        **options: Any,
    ) -> Self:
        """Compute the PITs of predictions and draw them.

        Args:
            dist: `batch_shape (N,)`, `event_shape (D,)`.
            y: observations `(N, D)`; a DataFrame's columns name the targets.
            prerank: one pre-rank.
            n_samples: draws per row where there is no closed form.
            generator: a generator or seed.
            options: of `from_pits`: `level`, `ax`, and `levels` of a curve or `bins` of a
                histogram.

        Example:
            >>> from torch.distributions import MultivariateNormal
            >>> from prerank.report import ReliabilityDisplay
            >>> dist = MultivariateNormal(torch.zeros(200, 3), torch.eye(3))
            >>> y = 0.3 * torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
            >>> ReliabilityDisplay.from_predictions(dist, y, "marginal", generator=0).caption
            'marginal: PITs crowded in the middle (values too often near the predicted median) in
            y0, y1 and y2.'
        """
        terms = (_single(prerank),)
        (result,) = project_pits(dist, y, terms, n_samples=n_samples, generator=generator)
        label, targets = result.prerank.label, column_names(y, dist.event_shape[0])
        names = result.prerank.component_names(targets, result.z.shape[-1])
        return cls.from_pits(
            result.z,
            label=label,
            names=names if len(names) > 1 else [label],
            band=result.method != WEIGHTED,
            **options,
        )

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: object,
        y: object,
        prerank: PreRankLike = "marginal",
        *,
        n_samples: int = N_SAMPLES,
        generator: torch.Generator | int | None = SEED,
        **options: Any,
    ) -> Self:
        """Draw the PITs that a fitted regressor has on rows that were not used in `fit`.

        Args:
            estimator: a regressor of prerank, or a fitted pipeline or search around one.
            X: inputs.
            y: targets.
            prerank: one pre-rank, in the units in which the regressor diagnoses.
            n_samples: draws per row where there is no closed form.
            generator: a generator or seed.
            options: of `from_pits`: `level`, `ax`, and `levels` of a curve or `bins` of a
                histogram.

        Example:
            >>> from prerank import MixtureRegressor
            >>> from prerank.datasets import AR1Regression
            >>> from prerank.report import ReliabilityDisplay
            >>> x, y = (part.numpy() for part in AR1Regression(dim=2).sample(200, generator=0))
            >>> model = MixtureRegressor(1, method="none", max_epochs=1, device="cpu")
            >>> model = model.fit(x[:100], y[:100])
            >>> ReliabilityDisplay.from_estimator(model, x[100:], y[100:]).names
            ('y0', 'y1')
        """
        term = _single(prerank)
        found = inner_regressor(estimator).diagnose(
            X, y, preranks=[term], n_samples=n_samples, generator=generator
        )
        names = [row.component for row in found.findings[1:]]
        return cls.from_pits(
            found.pits[term.label], label=term.label, names=names or [term.label], **options
        )

    @classmethod
    def from_pits(
        cls,
        z: object,
        *,
        label: str = "",
        names: Sequence[str] | None = None,
        level: float = BAND_LEVEL,
        band: bool = True,
        ax: "Axes | None" = None,
        **options: Any,
    ) -> Self:
        """Draw PITs `(N, J)` that are already there.

        Args:
            z: PITs.
            label: name of the pre-rank.
            names: names of the J components.
            level: probability of the band.
            band: False draws none; right for weighted samples, whose PITs are not exactly uniform.
            ax: where to draw; a new figure by default.
            options: `levels` of a reliability diagram (100 by default), or `bins` of a histogram
                (20 by default, or 10 where there are fewer than 400 rows).
        """
        values = check_pits(z)
        parts = cls._measured(values, level if band else None, **options)
        return cls(**parts, label=label, names=names).plot(ax)

    @property
    def shapes(self) -> list[DeviationShape]:
        """How each component deviates; an empty list where there is no band to judge it by."""
        raise NotImplementedError

    @property
    def caption(self) -> str:
        """What was found, or else the shape of the curves or bars, and what is not drawn."""
        start, size = f"{self.label}: " if self.label else "", len(self.names)
        words = f"{start}no band, since samples are weighted."
        if self.band is not None:
            words = reliability_caption(
                self.label,
                self.names,
                self.shapes,
                level=self.band.level,
                causes=self.causes,
                empty=self._empty,
            )
        if len(self.drawn) < size:
            words += f" Drawn are the {MOST_DRAWN} of {size} that deviate most."
        return words


def short_name(name: str) -> str:
    """Both ends of a long name: which one tells it from the others is not known.

    Example:
        >>> short_name("temperature at two metres above ground")
        'temperat… ground'
    """
    half = _WIDEST // 2
    return name if len(name) <= _WIDEST else f"{name[:half]}…{name[1 - half :]}"


def name_lines(ax: "Axes", **options: Any) -> None:
    """Draw a legend that takes names for what they are: no formulas in them, none left out.

    Args:
        ax: where to draw, and whose lines have names.
        options: passed to `Axes.legend`.
    """
    drawn = [artist for artist in (*ax.collections, *ax.lines) if artist.get_gid() == NAMED]
    names = [str(artist.get_label()) for artist in drawn]
    # A leading underscore would hide the entry, and a dollar sign begin a formula.
    shown = [f" {name}" if name.startswith("_") else name for name in names]
    legend = ax.legend(drawn, shown, fontsize="small", frameon=False, **options)
    for text in legend.get_texts():
        text.set_parse_math(False)


def split_axes(
    ax: "Axes", rows: int, columns: int, *, sharex: Share = "all", sharey: Share = "all"
) -> npt.NDArray[np.object_]:
    """Hide axes and put a grid of panels in their place.

    Args:
        ax: axes of any figure, in a grid or at a place of their own.
        rows: of the grid.
        columns: of the grid.
        sharex: which panels share the horizontal axis.
        sharey: likewise.

    Returns:
        Axes `(rows, columns)`.

    Example:
        >>> from matplotlib.figure import Figure
        >>> split_axes(Figure().subplots(), 2, 3).shape
        (2, 3)
    """
    ax.set_axis_off()
    spec, box = ax.get_subplotspec(), ax.get_position()
    grid: Any
    if spec is not None:
        grid = spec.subgridspec(rows, columns)
    else:
        edges = {"left": box.x0, "bottom": box.y0, "right": box.x1, "top": box.y1}
        grid = ax.figure.add_gridspec(rows, columns, **edges)
    return grid.subplots(sharex=sharex, sharey=sharey, squeeze=False)


def _single(prerank: PreRankLike) -> PreRank:
    """The pre-rank of a display, which shows one."""
    terms = parse(prerank)
    if len(terms) != 1:
        raise InputError(
            f"a display shows one pre-rank, got {len(terms)}: diagnose(...).plot() draws more"
        )
    return terms[0]
