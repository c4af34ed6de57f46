"""The errors that prerank raises, one small tree."""

__all__ = [
    "GradientError",
    "InputError",
    "InputTypeError",
    "MissingLibraryError",
    "NotApplicableError",
    "PrerankError",
    "ShapeError",
]


class PrerankError(Exception):
    """Base of every error that prerank raises on purpose."""


class InputError(PrerankError, ValueError):
    """An argument has a value that cannot be used; the message names it."""


class ShapeError(InputError):
    """Shapes do not fit together; the message prints both."""


class InputTypeError(PrerankError, TypeError):
    """An argument has the wrong type or dtype; the message names it."""


class NotApplicableError(InputError):
    """A pre-rank says nothing about this distribution; the message says what to use instead."""


class GradientError(InputTypeError):
    """A gradient was asked of something that has none, such as samples without `rsample`."""


class MissingLibraryError(InputError, ImportError):
    """An optional library is not installed; the message has the command that installs it."""
