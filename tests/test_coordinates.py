"""Labels of dimensions as text: two labels that differ stay apart."""

import numpy as np
import pandas as pd
import pytest

from prerank.coordinates import label_texts


@pytest.mark.parametrize(
    ("labels", "texts"),
    [
        (np.array(["1.0", "1", "v2.0"]), ["1.0", "1", "v2.0"]),
        (np.array(["1.0", 1, "x"], dtype=object), ["1.0", "1", "x"]),
        (np.array([1.0, 2.5]), ["1", "2.5"]),
        (np.array([1, 10]), ["1", "10"]),
        (pd.Index(["a", "b"]), ["a", "b"]),
        (pd.date_range("2025-01-01", periods=2), ["2025-01-01", "2025-01-02"]),
    ],
)
def test_labels_are_told_apart(labels, texts):
    assert label_texts(labels) == texts
