"""The eighteen datasets of the paper, found by name."""

from difflib import get_close_matches

from prerank.datasets.catalogue import DATASETS
from prerank.datasets.description import Dataset, Origin
from prerank.errors import InputError

__all__ = ["DATASETS", "Dataset", "Origin", "canonical_name", "find_dataset"]


def canonical_name(name: str) -> str:
    """The registry's own spelling of a name; a name that it does not know stays as it is.

    Example:
        >>> canonical_name("blogdata"), canonical_name("mine")
        ('blog_data', 'mine')
    """
    return next((record.name for record in DATASETS if name in record.aliases), name)


def find_dataset(name: str) -> Dataset:
    """The record of a dataset, by its name or another spelling of it.

    Example:
        >>> air = find_dataset("air")
        >>> air.n_inputs, air.n_targets, air.fetchable
        (15, 6, True)
        >>> find_dataset("airs")
        Traceback (most recent call last):
        prerank.errors.InputError: there is no dataset 'airs'; did you mean air, ...?
    """
    wanted = canonical_name(name)
    for record in DATASETS:
        if record.name == wanted:
            return record
    names = [record.name for record in DATASETS]
    near = get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    advice = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(names)}"
    raise InputError(f"there is no dataset {name!r}; {advice}")
