"""A map of stations: where the excess is large, on plain axes."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from prerank.calibration import holm
from prerank.defaults import SIGNIFICANCE
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_tensor
from prerank.report.annotations import write_beside
from prerank.report.drawing import Display, short_name
from prerank.report.wording import listed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["StationDisplay"]

_MOST_NAMED = 20
_SMALLEST, _LARGEST = 40.0, 220.0  # areas of the marks, in square points
_DEGREES = {"longitude", "lon", "latitude", "lat"}


class StationDisplay(Display):
    """The excess of each station at its place: darker and larger marks are worse.

    Stations with evidence against them have a thick black edge, the others a thin grey one.

    Args:
        x: first coordinate of each station, `(K,)`.
        y: second coordinate.
        excess: of each station, or another number to be shown.
        names: of the stations; up to 20 are written beside them.
        p_values: of the stations, corrected here by Holm over all of them; none by default.
        axes: names of the coordinates. Those called longitude and latitude get the scale that they
            have in the middle of the map.
        label: name of what is shown.

    Attributes:
        ax_: the axes, after `plot`.
        figure_: their figure.
        marks_: the drawn marks.

    Example:
        >>> display = StationDisplay(
        ...     [7.1, 3.7, 10.8],
        ...     [50.7, 51.1, 59.9],
        ...     [0.08, 0.0, 0.01],
        ...     names=["Bonn", "Ghent", "Oslo"],
        ...     p_values=[0.001, 0.6, 0.4],
        ... )
        >>> display.caption
        'excess from 0.000 (Ghent) to 0.080 (Bonn); evidence at 1 of 3 stations: Bonn.'
    """

    marks_: Any

    def __init__(
        self,
        x: object,
        y: object,
        excess: object,
        *,
        names: Sequence[str] | None = None,
        p_values: object = None,
        axes: tuple[str, str] = ("longitude", "latitude"),
        label: str = "excess",
    ) -> None:
        given = {"x": x, "y": y, "excess": excess}
        if p_values is not None:
            given["p_values"] = p_values
        values = {name: as_tensor(value, name).double().numpy() for name, value in given.items()}
        size = len(values["excess"])
        for name, value in values.items():
            if value.shape != (size,) or not size:
                raise ShapeError(f"{name} has shape {value.shape}, but there are {size} stations")
            if name != "p_values" and not np.isfinite(value).all():
                raise InputError(f"{name} has missing or infinite values: leave those stations out")
        if names is not None and len(names) != size:
            raise ShapeError(f"{len(names)} names for {size} stations")
        self.x, self.y, self.excess = values["x"], values["y"], values["excess"]
        self.names = tuple(str(k) for k in range(size)) if names is None else tuple(map(str, names))
        self.evidence: npt.NDArray[np.bool_] | None = None
        if p_values is not None:
            self.evidence = np.asarray(holm(values["p_values"].tolist())) < SIGNIFICANCE
        self.axes, self.label = axes, label

    @classmethod
    def from_table(
        cls,
        table: "pd.DataFrame",
        *,
        x: str = "longitude",
        y: str = "latitude",
        value: str = "excess",
        name: str = "group",
        p_value: str | None = "p_value",
    ) -> Self:
        """Take stations from a table, one in each row, such as that of a `GroupedDiagnosis`.

        Args:
            table: with a column for each of the other arguments.
            x: first coordinate.
            y: second coordinate.
            value: what is shown.
            name: names of the stations; the index where there is no such column.
            p_value: not yet corrected; None for none.
        """
        columns = [x, y, value, *([p_value] if p_value else [])]
        missing = [column for column in columns if column not in table.columns]
        if missing:
            raise InputError(
                f"table has no column {missing[0]!r}: join the coordinates of the stations to it, "
                "as in table.join(places, on='group'), or name the columns"
            )
        names = table[name] if name in table.columns else table.index
        if names.duplicated().any():
            raise InputError(
                "table has several rows for a station: choose one of each, as in "
                "table.query(\"prerank == 'location' and component == 'all'\")"
            )
        p_values = None if p_value is None else table[p_value]
        values = (table[column] for column in (x, y, value))
        return cls(*values, names=list(names), p_values=p_values, axes=(x, y), label=value)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches at which the writing is legible."""
        return 5.4, 4.4

    @property
    def caption(self) -> str:
        """One sentence: the range, and where there is evidence."""
        low, high = int(self.excess.argmin()), int(self.excess.argmax())
        ends = [f"{self.excess[k]:.3f} ({self.names[k]})" for k in (low, high)]
        words = f"{self.label} from {ends[0]} to {ends[1]}"
        if self.evidence is None:
            return f"{words}."
        wrong = [name for name, out in zip(self.names, self.evidence, strict=True) if out]
        words += f"; evidence at {len(wrong)} of {len(self.names)} stations"
        shown = wrong if len(wrong) <= _MOST_NAMED else []
        return f"{words}: {listed(shown)}." if shown else f"{words}."

    def plot(self, ax: "Axes | None" = None, *, colours: str = "YlOrRd") -> Self:
        """Draw on the axes, or in a new figure.

        Args:
            ax: where to draw.
            colours: name of a map of colours that goes from light to dark.
        """
        ax = self._place(ax)
        top = max(float(self.excess.max()), 1e-12)
        shares = np.clip(self.excess / top, 0, 1)
        areas = _SMALLEST + (_LARGEST - _SMALLEST) * shares
        marked = np.zeros(len(shares), bool) if self.evidence is None else self.evidence
        order = np.argsort(-areas, kind="stable")  # small marks above large ones
        self.marks_ = ax.scatter(
            self.x[order],
            self.y[order],
            areas[order],
            np.clip(self.excess, 0, None)[order],
            cmap=colours,
            vmin=0,
            vmax=top,
            edgecolors=["black" if marked[k] else "0.5" for k in order],
            linewidths=[2.0 if marked[k] else 0.6 for k in order],
        )
        ax.figure.colorbar(self.marks_, ax=ax, label=self.label)
        ax.set_xlabel(short_name(self.axes[0]), parse_math=False)
        ax.set_ylabel(short_name(self.axes[1]), parse_math=False)
        if {name.lower() for name in self.axes} <= _DEGREES:
            middle = math.radians(float(self.y.min() + self.y.max()) / 2)
            ax.set_aspect(1 / max(math.cos(middle), 0.1), adjustable="datalim")
        ax.margins(0.15)
        if marked.any():
            ax.set_title("thick edge: evidence of miscalibration", fontsize="small")
        if len(self.names) <= _MOST_NAMED:
            texts = [short_name(name) for name in self.names]
            places = list(zip(self.x.tolist(), self.y.tolist(), strict=True))
            ax.autoscale_view()
            write_beside(ax, texts, places, (np.sqrt(areas) / 2 + 1).tolist(), fontsize="x-small")
        return self
