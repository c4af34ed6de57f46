"""Reading CSV, ARFF and Parquet files into columns with names."""

import csv
import io
import os
import re
from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from prerank.errors import InputError
from prerank.files.arff import read_arff
from prerank.files.columns import family
from prerank.files.disk import as_path, check_size
from prerank.files.frames import Frame, naming
from prerank.inputs import repeated

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

__all__ = [
    "ROW_NUMBERS",
    "TABLES",
    "parse_columns",
    "read_columns",
    "read_csv",
    "read_frame",
    "read_parquet",
    "sniff_delimiter",
]

_CSV, _ARFF, _PARQUET = (".csv", ".tsv", ".txt", ".data"), (".arff",), (".parquet", ".pq")
TABLES = _CSV + _ARFF + _PARQUET
"""Suffixes of the files that hold tables."""

ROW_NUMBERS = re.compile(r"(Unnamed: \d+|__index_level_\d+__)?")
"""Names of columns that pandas wrote along."""

_DELIMITERS = ",;\t"
_SAMPLE_CHARACTERS, _SAMPLE_ROWS = 65_536, 20
_MISSING = ("", "?", "NA", "N/A", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None")
_PART, _PART_OF_LISTS = 2**16, 2**10  # rows of a Parquet file that are read at once
_LARGEST_CSV = 2**31 - 2  # one block of pyarrow's reader, see below


def read_frame(path: str | os.PathLike[str], *, text: Collection[str] = ()) -> Frame:
    """Read a table that has rows; see `read_columns`."""
    table = read_columns(path, text=text)
    if table.num_rows == 0:
        raise InputError(f"{path}: the table has no rows")
    return Frame(Path(path), table.num_rows, {name: table[name] for name in table.column_names})


def read_columns(
    path: str | os.PathLike[str], *, header: bool = True, text: Collection[str] = ()
) -> "pa.Table":
    """Read a table from a file; the suffix determines its format.

    Args:
        path: `.csv`, `.tsv`, `.txt` and `.data` hold rows with a delimiter, `.arff` a dense ARFF
            file, `.parquet` and `.pq` Parquet.
        header: whether the first row of a CSV file names the columns; else they are 0, 1, ...
        text: columns of a CSV file that are text, whatever they look like: `007` is not 7.

    Raises:
        InputError: when the file is not there, is empty, is not what its suffix says, or has
            several columns of one name; the message begins with the path.
    """
    file = as_path(path)
    suffix = file.suffix.lower()
    if not header and suffix in _ARFF + _PARQUET:
        raise InputError(f"{file}: only a CSV file can be without a header")
    try:
        with naming(file):
            if suffix in _PARQUET:
                return read_parquet(file)
            return parse_columns(file.read_bytes(), file.name, header=header, text=text)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror or error}") from error


def parse_columns(
    data: bytes, file: str, *, header: bool = True, text: Collection[str] = ()
) -> "pa.Table":
    r"""Read a table from the bytes of a CSV or ARFF file of that name; see `read_columns`.

    Example:
        >>> parse_columns(b"depth;bed\n1.5;sand\n;gravel\n", "rivers.csv").to_pydict()
        {'depth': [1.5, None], 'bed': ['sand', 'gravel']}
    """
    suffix = Path(file).suffix.lower()
    if suffix not in _CSV + _ARFF:
        raise InputError(
            f"a file that ends in {suffix!r} cannot be read: known are {', '.join(TABLES)}"
        )
    if not data.strip():
        raise InputError("the file is empty")
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"the file is not UTF-8 text (byte {error.start}): convert it first"
        ) from error
    if suffix in _ARFF:
        table = read_arff(content)
    else:
        start = content[:_SAMPLE_CHARACTERS]
        del content  # the reader below works on the bytes
        table = read_csv(data, sniff_delimiter(start), header=header, text=text)
    _check_names(table.column_names)
    return table


def sniff_delimiter(text: str) -> str:
    r"""Find out whether commas, semicolons or tabs part the values of a CSV file.

    The one that parts the first rows into equally many values, and the most of them.

    Example:
        >>> sniff_delimiter("a;b\n1,5;2,5\n1,7;2,2\n"), sniff_delimiter("a,b\n1,'2;3'\n")
        (';', ',')
    """
    return max(_DELIMITERS, key=lambda delimiter: _fit(text, delimiter))


def read_csv(
    data: bytes, delimiter: str, *, header: bool = True, text: Collection[str] = ()
) -> "pa.Table":
    """Read the bytes of a CSV file, and find out the type of each column from all its values.

    An empty value, `?`, `NA`, `NaN`, `null` and their like are missing. Whole numbers become
    int64, other numbers float64, `true` and `false` bool, and what is none of these, or is named
    in `text`, text.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow

    if len(data) > _LARGEST_CSV:
        raise InputError("a CSV file of 2 GiB or more: convert it to Parquet first")
    words = [space + word for space in ("", " ") for word in _MISSING]
    typed = {name: pa.string() for name in _header(data, delimiter) if name.strip() in text}
    try:
        table = arrow.read_csv(
            pa.BufferReader(data),
            # Types are inferred from the first block: it has to be the whole file. Threads that
            # still wait for work when the process ends could abort it.
            read_options=arrow.ReadOptions(
                use_threads=False,
                block_size=len(data) + 1,
                autogenerate_column_names=not header,
            ),
            parse_options=arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=arrow.ConvertOptions(
                null_values=words, strings_can_be_null=True, column_types=typed
            ),
        )
    except pa.ArrowException as error:
        raise InputError(f"not a CSV file with as many values in each row: {error}") from error
    names = [name.strip() for name in table.column_names]
    return table.rename_columns(names if header else [str(i) for i in range(len(names))])


def _header(data: bytes, delimiter: str) -> list[str]:
    """Names of the columns as they stand in the file, spaces and all."""
    lines = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")
    try:
        return next(csv.reader(lines, delimiter=delimiter), [])
    except csv.Error as error:
        raise InputError(f"its first row cannot be read: {error}") from error


def read_parquet(path: Path) -> "pa.Table":
    """Read a Parquet file; what its values take is known before they are allocated.

    Text is read as a dictionary first: a value that is stored once, and stands in every row, takes
    that many times its size.

    Raises:
        OSError: when it cannot be opened.
        InputError: when it is damaged, has several columns of one name or text in lists or records,
            or would take more memory than `check_size` allows; the message does not name the file.
    """
    import pyarrow as pa
    from pyarrow import parquet

    with path.open("rb") as file:  # a folder, or no permission, is an OSError
        try:
            about = parquet.read_metadata(file)
            claimed = _claimed_bytes(about)
            check_size(path, claimed)
            schema = about.schema.to_arrow_schema()
            _check_names(schema.names)
            text = _text_columns(about, schema)
            source = parquet.ParquetFile(
                file, metadata=about, read_dictionary=text, page_checksum_verification=True
            )
            table = _read_in_parts(path, source)
            if table.num_rows != about.num_rows:  # pyarrow may end early without a word
                raise InputError(f"{table.num_rows} of {about.num_rows} rows: it is damaged")
            table.validate(full=True)  # text that is no text would fail much later
            check_size(path, claimed + sum(_text_bytes(table[name]) for name in text))
            views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
            columns = []
            for column, field in zip(table.columns, schema, strict=True):
                kind = views.get(field.type, field.type)
                if column.type != kind:
                    coded = pa.types.is_dictionary(column.type)
                    plain = column.cast(column.type.value_type) if coded else column
                    columns.append(plain.cast(kind))
                else:
                    columns.append(column)
                if pa.types.is_timestamp(kind):
                    pa.scalar(0, kind).cast(pa.string())  # its time zone has to be known
            # What pandas noted in the file would be parsed later, valid or not.
            noted = {k: v for k, v in (schema.metadata or {}).items() if k != b"pandas"}
            return pa.table(columns, names=schema.names).replace_schema_metadata(noted)
        except InputError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(f"not a Parquet file that can be read: {error}") from error


def _claimed_bytes(about: "parquet.FileMetaData") -> int:
    """What the values take, by the header: 8 bytes in each row, those of fixed length more.

    How many values the lists of a column have is not asked: pyarrow ends the process where the
    header of a column is damaged.
    """
    rows = sum(about.row_group(i).num_rows for i in range(about.num_row_groups))
    return rows * sum(max(8, about.schema.column(i).length) for i in range(about.num_columns))


def _read_in_parts(path: Path, source: "parquet.ParquetFile") -> "pa.Table":
    """Read some rows at a time, of lists fewer, and stop where they take too much."""
    import pyarrow as pa

    schema = source.schema_arrow
    nested = any(pa.types.is_nested(field.type) for field in schema)
    parts, taken = [], 0
    for part in source.iter_batches(_PART_OF_LISTS if nested else _PART):
        taken += part.nbytes
        check_size(path, taken)
        parts.append(part)
    return pa.Table.from_batches(parts, parts[0].schema if parts else schema)


def _text_columns(about: "parquet.FileMetaData", schema: "pa.Schema") -> list[str]:
    """Names of the columns of text, or bytes; such values elsewhere, as in lists, are refused."""
    found, names = [], set(schema.names)
    for i in range(about.num_columns):
        column = about.schema.column(i)
        if column.physical_type != "BYTE_ARRAY":
            continue
        known = column.path in names
        kind = family(schema.field(column.path).type) if known else "nested"
        if kind not in ("text", "binary", "number"):  # a number is a decimal here
            raise InputError(
                f"column {column.path!r} has text in lists, records or a type of its own: leave it "
                "out of the file, or turn it into columns of plain text"
            )
        if kind != "number":
            found.append(column.path)
    return found


def _text_bytes(column: "pa.ChunkedArray") -> int:
    """What text takes once every row has a copy of its own."""
    import pyarrow.compute as pc

    lengths = (pc.binary_length(chunk.dictionary).take(chunk.indices) for chunk in column.chunks)
    return sum(pc.sum(length).as_py() or 0 for length in lengths)


def _fit(text: str, delimiter: str) -> tuple[bool, int]:
    """Whether the first rows have equally many values, more than one, and how many the first has.

    In strict mode a quote that closes elsewhere than before a delimiter is an error: without it,
    a wrong delimiter could swallow all rows into one.
    """
    rows = csv.reader(text.splitlines(keepends=True), delimiter=delimiter, strict=True)
    widths: list[int] = []
    clean = True
    try:
        widths.extend(len(row) for row in islice(rows, _SAMPLE_ROWS) if row)
    except csv.Error:
        clean = False
    if len(text) >= _SAMPLE_CHARACTERS and 1 < len(widths) < _SAMPLE_ROWS:
        clean = True  # the sample ends within a row
        widths.pop()
    agree = clean and len(set(widths)) == 1 and widths[0] > 1
    return agree, widths[0] if widths else 0


def _check_names(names: Collection[str]) -> None:
    again = repeated(names)
    if again:
        raise InputError(
            f"several columns are named {', '.join(map(repr, again))}: give each its own name"
        )
