"""Colours and line styles that all readers tell apart, on screen and in print."""

__all__ = ["COLOURS", "STYLES"]

# The colours of Okabe and Ito, which readers of all kinds of colour vision tell apart. Seven
# colours and four line styles give 28 pairs before one comes back, and lines differ in grey too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9")
STYLES = ("-", "--", "-.", ":")
