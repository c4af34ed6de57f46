"""Results of a regressor as DataFrames, with the names of the targets and the index of the rows."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError

__all__ = ["LabelledResults"]

_CONTAINERS = ("default", "pandas")


class LabelledResults:
    """What makes `predict`, `predict_quantiles` and `predict_interval` return DataFrames.

    Example:
        >>> import pandas as pd
        >>> from prerank import MixtureRegressor
        >>> table = pd.DataFrame({"x": range(20), "rain": range(20), "wind": range(20)})
        >>> model = MixtureRegressor(1, method="none", max_epochs=1, device="cpu")
        >>> model = model.set_output(transform="pandas").fit(table[["x"]], table[["rain", "wind"]])
        >>> model.predict(table[["x"]]).columns.to_list()
        ['rain', 'wind']
        >>> model.predict_quantiles(table[["x"]], [0.1, 0.9])["wind"].columns.to_list()
        [0.1, 0.9]
    """

    target_names_: tuple[str, ...]
    flat_target_: bool

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose the container of predictions.

        `"pandas"`: `predict` returns a DataFrame with a column for each target, `predict_quantiles`
        and `predict_interval` one with two levels of columns; the index is that of X. After a fit
        to a vector they return a Series, and DataFrames with one level. Samples and distributions
        stay as they are. `clone` keeps the choice, a saved model does not.

        Args:
            transform: `"pandas"`, `"default"` for arrays, or None for no change; the argument has
                the name that it has in the transformers of scikit-learn.
        """
        if transform is not None and transform not in _CONTAINERS:
            raise InputError(f"transform must be 'default', 'pandas' or None, got {transform!r}")
        if transform is not None:  # scikit-learn's own attribute: its `clone` copies it
            self._sklearn_output_config = {"transform": transform}
        return self

    def _labelled(
        self,
        values: npt.NDArray[np.float64],
        X: Any,
        *,
        axis: int | None = None,
        level: str = "",
        labels: Sequence[Any] = (),
    ) -> Any:
        """Predictions in the container that was chosen.

        Args:
            values: `(N, D)`, or `(N,)` after a fit to a vector, and one more axis at `axis`.
            X: what was predicted from.
            axis: of quantiles or ends.
            level: its name.
            labels: along it.
        """
        if getattr(self, "_sklearn_output_config", {}).get("transform") != "pandas":
            return values
        import pandas as pd

        index = X.index if isinstance(X, pd.DataFrame) else None
        names = pd.Index(self.target_names_, name="target")
        if axis is None:
            if self.flat_target_:
                return pd.Series(values, index, name=names[0])
            return pd.DataFrame(values, index, columns=list(names))
        along = pd.Index(labels, name=level)
        columns = along if self.flat_target_ else pd.MultiIndex.from_product([names, along])
        table = np.moveaxis(values, axis, -1).reshape(-1, len(columns))
        return pd.DataFrame(table, index, columns=columns)
