"""What the words of a verdict mean, and how often a verdict is wrong."""

from prerank.calibration.causes import NAMED_ALONE
from prerank.calibration.decision import DEGREES, STRONG_EVIDENCE
from prerank.defaults import SIGNIFICANCE
from prerank.report.explanations import words_in

__all__ = ["glossary"]


def glossary() -> dict[str, str]:
    """Words of verdicts and their thresholds, with the sum of the error rates of all tests.

    The tests of a verdict are made on the same rows, so their rates add up.

    Example:
        >>> glossary()["some evidence"]
        'the smallest corrected p-value is between 0.01 and 0.05, whatever the size of the error'
    """
    numbers: dict[str, float] = {
        **{str(name): least for name, least in DEGREES.items()},
        "certain": STRONG_EVIDENCE,
        "significance": SIGNIFICANCE,
        "targets": 2 * NAMED_ALONE,  # on their own, or together
        "dependence": NAMED_ALONE,
        "any": SIGNIFICANCE + 3 * NAMED_ALONE,
    }
    words = words_in("prerank.diagnosis", "words.toml")["glossary"]
    return {name: text.format(**numbers).replace("%", " %") for name, text in words.items()}
