"""The eighteen datasets of the paper: where each comes from, and how it becomes a table."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from prerank.errors import InputError
from prerank.files.frames import did_you_mean

__all__ = ["DATASETS", "Dataset", "Origin", "canonical_name", "find_dataset"]


@dataclass(frozen=True)
class Origin:
    """A public file in a repository, pinned to one commit.

    Attributes:
        repository: `owner/name` on GitHub.
        commit: all 40 digits.
        path: of the file inside the repository.
        sha256: of the file's bytes; empty where it was never recorded.
        size: in bytes; 0 where it was never recorded.

    Example:
        >>> origin = Origin("someone/tables", "0" * 40, "data/rivers.csv")
        >>> origin.file, origin.verifiable
        ('rivers.csv', False)
        >>> origin.url
        'https://raw.githubusercontent.com/someone/tables/000.../data/rivers.csv'
        >>> origin.at("http://localhost:8000/mirror/")
        'http://localhost:8000/mirror/rivers.csv'
    """

    repository: str
    commit: str
    path: str
    sha256: str = ""
    size: int = 0

    @property
    def file(self) -> str:
        """Name of the file without its folders."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def url(self) -> str:
        """Address of the file at the pinned commit."""
        where = f"{self.repository}/{self.commit}/{self.path}"
        return f"https://raw.githubusercontent.com/{quote(where)}"

    @property
    def verifiable(self) -> bool:
        """Whether a download can be verified."""
        return bool(self.sha256 and self.size)

    def at(self, folder: str) -> str:
        """Address of the file in a mirror that keeps all originals in one folder."""
        return f"{folder.rstrip('/')}/{quote(self.file)}"


@dataclass(frozen=True)
class Dataset:
    """One dataset: its size, its targets, its origin, and what to know before using it.

    Attributes:
        name: also of the Parquet file.
        n_rows: rows N of the published runs.
        n_inputs: inputs L after encoding; None where nobody wrote it down.
        n_targets: targets D.
        targets: names of the target columns, in order.
        rule: in words, which columns are targets and which are inputs.
        licence: under what terms the data can be had, and who says so.
        origin: the public file, where there is one.
        bring: for those that cannot be fetched, what the user has to bring.
        deviation: how the table here differs from the one of the published runs.
        aliases: other names that are understood.
        inputs: names of the input columns before encoding; all but the targets where empty.
        ignored: columns of the original that are neither.
        sorted_inputs: whether inputs stand in the order of their names, not of the file.
        header: whether the original names its columns; else they are 0, 1, ...
        content: `content_hash` of the table here; empty where there is none.

    Example:
        >>> rivers = Dataset("rivers", 100, 3, 2, ("flow", "depth"), "named", "CC0", bring="a CSV")
        >>> rivers.fetchable
        False
    """

    name: str
    n_rows: int
    n_inputs: int | None
    n_targets: int
    targets: tuple[str, ...]
    rule: str
    licence: str
    origin: Origin | None = None
    bring: str = ""
    deviation: str = "none known"
    aliases: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    sorted_inputs: bool = False
    header: bool = True
    content: str = ""

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        if len(self.targets) != self.n_targets:
            raise InputError(
                f"dataset {self.name!r} has {self.n_targets} targets, but {len(self.targets)} names"
            )
        if not self.fetchable and not self.bring:
            raise InputError(
                f"dataset {self.name!r} needs an origin with sha256 and size, or a word on what "
                "the user has to bring"
            )

    @property
    def fetchable(self) -> bool:
        """Whether `fetch` can get it."""
        return self.origin is not None and self.origin.verifiable


def _read_registry() -> tuple[Dataset, ...]:
    entries = tomllib.loads(files("prerank.datasets").joinpath("registry.toml").read_text("utf-8"))
    benchmark = entries.pop("benchmark")
    records = []
    for name, entry in entries.items():
        facts: dict[str, Any] = {"n_inputs": None}
        facts |= {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
        if "origin" in facts:
            facts["origin"] = Origin(**(benchmark | facts["origin"]))
        records.append(Dataset(name, **facts))
    return tuple(records)


DATASETS: tuple[Dataset, ...] = _read_registry()
"""The eighteen of the paper, in the order of its tables."""


def canonical_name(name: str) -> str:
    """The registry's own spelling of a name; a name that it does not know stays as it is.

    Example:
        >>> canonical_name("blogdata"), canonical_name("mine")
        ('blog_data', 'mine')
    """
    return next((record.name for record in DATASETS if name in record.aliases), name)


def find_dataset(name: str) -> Dataset:
    """The entry of a dataset, by its name or another spelling of it.

    Example:
        >>> air = find_dataset("air")
        >>> air.n_inputs, air.n_targets, air.fetchable
        (15, 6, True)
        >>> find_dataset("airs")
        Traceback (most recent call last):
        prerank.errors.InputError: there is no dataset 'airs'; did you mean air, ...?
    """
    known = {record.name: record for record in DATASETS}
    wanted = canonical_name(name)
    if wanted not in known:
        advice = did_you_mean([name], known, cutoff=0.5, most=len(known))
        raise InputError(f"there is no dataset {name!r}; {advice}")
    return known[wanted]
