"""What each pre-rank asks, and what its PITs say when they are not uniform."""

from dataclasses import dataclass

__all__ = ["EXPLANATIONS", "Explanation", "explanation_of"]


@dataclass(frozen=True)
class Explanation:
    """A pre-rank in words.

    Attributes:
        question: that it asks of a prediction.
        formula: what is ranked.
        small: what PITs that are too small say.
        large: what PITs that are too large say.
        outer: what PITs at both ends say.
        inner: what PITs in the middle say.
        blind: what it cannot see.
        repair: what to try where it fails.
    """

    question: str
    formula: str
    small: str
    large: str
    outer: str
    inner: str
    blind: str
    repair: str


_JOINT = (
    "predict the targets jointly (full covariances, or more mixture components), and train with "
    "a penalty on it"
)
_COPULA = Explanation(
    question="Do the targets reach low and high values together as often as predicted?",
    formula="T = number of samples that lie below the point in every target",
    small="observations too seldom above many samples in every target at once (values lower than "
    "predicted, targets that move together less, or, for three and more, predictions too narrow)",
    large="observations too often above many samples in every target at once (values higher than "
    "predicted, or targets that move together more)",
    outer="a number of samples below that varies more than predicted (targets that move together "
    "more, or predictions too narrow)",
    inner="a number of samples below that varies less than predicted (targets that move together "
    "less, or predictions too wide)",
    blind="many targets: almost no sample lies below another then, nearly all values tie, and the "
    "table says that there is no power",
    repair=_JOINT,
)

EXPLANATIONS: dict[str, Explanation] = {
    "marginal": Explanation(
        question="Is each target right on its own?",
        formula="T_d = y_d, one component for each target",
        small="observed values lower than predicted",
        large="observed values higher than predicted",
        outer="predictions too narrow",
        inner="predictions too wide",
        blind="the dependence between targets",
        repair="for a bias, look for a change between training and these rows; for a wrong width, "
        "train with a penalty on it or recalibrate each target",
    ),
    "location": Explanation(
        question="Is the mean of the targets right?",
        formula="T = (y_1 + ... + y_D) / D",
        small="a mean of the targets lower than predicted",
        large="a mean of the targets higher than predicted",
        outer="a mean of the targets that varies more than predicted (predictions too narrow, or "
        "targets that move together more than predicted)",
        inner="a mean of the targets that varies less than predicted (predictions too wide, or "
        "targets that move together less than predicted)",
        blind="errors of single targets that cancel in the mean",
        repair=_JOINT,
    ),
    "scale": Explanation(
        question="Are the targets of one row as far apart as predicted?",
        formula="T = variance of y_1, ..., y_D around their mean",
        small="targets closer together than predicted (predictions too wide, or targets that move "
        "together more than predicted)",
        large="targets further apart than predicted (predictions too narrow, or targets that move "
        "together less than predicted)",
        outer="a distance between the targets that varies more than predicted",
        inner="a distance between the targets that varies less than predicted",
        blind="a bias that all targets share",
        repair=_JOINT,
    ),
    "dependency": Explanation(
        question="Are neighbouring targets as alike as predicted?",
        formula="T = - (mean of (y_d - y_{d+h})^2) / (2 variance of y_1, ..., y_D)",
        small="neighbouring targets less alike than predicted",
        large="neighbouring targets more alike than predicted",
        outer="a likeness of neighbouring targets that varies more than predicted",
        inner="a likeness of neighbouring targets that varies less than predicted",
        blind="a bias or a width that all targets share, where their predicted means are alike; "
        "and two targets, for which it is constant. The order of the targets decides what a "
        "neighbour is",
        repair=_JOINT,
    ),
    "pca": Explanation(
        question="Are the directions in which the prediction varies most, and least, right?",
        formula="T_j = v_j(x) . y, for the principal directions v_j of the predicted covariance",
        small="observed projections lower than predicted",
        large="observed projections higher than predicted",
        outer="predictions too narrow",
        inner="predictions too wide",
        blind="dependence that leaves the single projections alone",
        repair="a wrong width along the last components is a correlation that is predicted too "
        f"strong or too weak: {_JOINT}",
    ),
    "hdr": Explanation(
        question="Do observations fall into regions of high density as often as predicted?",
        formula="T = log of the predicted density at the point",
        small="observations too often where the density is low (predictions too narrow or off the "
        "mark, or targets that depend on each other less than predicted)",
        large="observations too often where the density is high (predictions too wide, or targets "
        "that depend on each other more than predicted)",
        outer="observations too often where the density is lowest or highest (some predictions too "
        "narrow, others too wide, or a wrong dependence)",
        inner="observations too seldom where the density is lowest or highest",
        blind="errors that leave the density alone, such as a swap of two alike targets; samples "
        "without a density cannot be asked",
        repair="train with a penalty on it; where it fails on new rows and not on those of the "
        "training, the predictor is fitted too closely",
    ),
    "copula": _COPULA,
    "multivariate_rank": _COPULA,
    "average_rank": Explanation(
        question="Do the targets rank low or high among the samples, on average over them?",
        formula="T = mean over the targets of the rank among the samples",
        small="observed values lower than predicted, on average over the targets",
        large="observed values higher than predicted, on average over the targets",
        outer="a mean rank that varies more than predicted (targets that move together more, or "
        "predictions too narrow)",
        inner="a mean rank that varies less than predicted (targets that move together less, or "
        "predictions too wide)",
        blind="errors of single targets that cancel in the mean",
        repair=_JOINT,
    ),
    "band_depth": Explanation(
        question="Do observations lie as deep among the samples as predicted?",
        formula="T = mean over the targets of (samples below) x (samples above)",
        small="observations too often far out (predictions too narrow or off the mark)",
        large="observations too often in the middle (predictions too wide, or a wrong dependence)",
        outer="observations too often far out or in the middle (some predictions too narrow, "
        "others too wide; or targets that move together more than predicted)",
        inner="observations too seldom far out or in the middle (targets that move together less "
        "than predicted)",
        blind="which side an observation lies on",
        repair="train with a penalty on marginal or hdr, to which it is kin",
    ),
    "energy_score": Explanation(
        question="Are observations as far from the samples as these are from each other?",
        formula="T = energy score of the point against the other samples",
        small="observations too often close to the samples (predictions too wide, or targets that "
        "depend on each other more than predicted)",
        large="observations too often far from the samples (predictions too narrow or off the "
        "mark, or targets that depend on each other less than predicted)",
        outer="observations too often very close or very far (some predictions too wide, others "
        "too narrow, or a wrong dependence)",
        inner="observations too seldom very close or very far",
        blind="which side an observation lies on",
        repair="train with a penalty on it, or on hdr where there is a density",
    ),
    "threshold_exceedance": Explanation(
        question="Do as many targets exceed the threshold at once as predicted?",
        formula="T = share of the targets above the threshold",
        small="fewer targets above the threshold than predicted",
        large="more targets above the threshold than predicted",
        outer="a number of targets above the threshold that varies more than predicted",
        inner="a number of targets above the threshold that varies less than predicted",
        blind="everything but the threshold",
        repair=_JOINT,
    ),
}

_OTHER = Explanation(
    question="Is this function of the targets right?",
    formula="T = the function",
    small="values lower than predicted",
    large="values higher than predicted",
    outer="values that vary more than predicted",
    inner="values that vary less than predicted",
    blind="what the function leaves out",
    repair="train with a penalty on it",
)


def explanation_of(label: str) -> Explanation:
    """Words for a pre-rank by its label; general ones for a function of one's own.

    Example:
        >>> explanation_of("dependency(2)").question
        'Are neighbouring targets as alike as predicted?'
    """
    return EXPLANATIONS.get(label.partition("(")[0], _OTHER)
