"""Records as Markdown tables, which a terminal shows well too."""

from collections.abc import Sequence

from timing import Record


def table(records: Sequence[Record]) -> str:
    """A table with a column for each name that occurs, padded to equal widths."""
    names = list(dict.fromkeys(name for record in records for name in record))
    cells = [[_text(record.get(name, "")) for name in names] for record in records]
    numeric = [
        all(isinstance(record.get(name, 0), int | float) for record in records) for name in names
    ]
    widths = [
        max(2, len(name), *(len(row[column]) for row in cells)) for column, name in enumerate(names)
    ]
    rule = [
        "-" * (width - 1) + (":" if right else "-")
        for width, right in zip(widths, numeric, strict=True)
    ]

    def line(row: Sequence[str]) -> str:
        padded = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ]
        return f"| {' | '.join(padded)} |"

    return "\n".join([line(names), line(rule), *(line(row) for row in cells)])


def _text(value: str | int | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"
    return str(value)
