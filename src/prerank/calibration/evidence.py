"""What was found for pre-ranks and their components, as a verdict weighs it."""

from dataclasses import dataclass

from prerank.calibration import DeviationShape, holm

__all__ = ["SIGNIFICANCE", "Evidence", "Part"]

SIGNIFICANCE = 0.05
"""Corrected p-values below it are evidence."""


@dataclass(frozen=True)
class Part:
    """What was found for one component of a pre-rank.

    Attributes:
        name: of the component.
        pce: of its PITs.
        p_value: NaN where there is none.
        shape: of its deviation; None where there is no band to judge it by.
    """

    name: str
    pce: float
    p_value: float
    shape: DeviationShape | None


@dataclass(frozen=True)
class Evidence:
    """What was found for one pre-rank.

    Attributes:
        label: of the pre-rank.
        pce: mean over the components.
        floor: what a perfect predictor scores on average.
        p_holm: corrected p-value, NaN where there is none.
        parts: its components, one at least.
        note: such as that there is no power.
        powerless: whether nearly all samples tie with the observation.
    """

    label: str
    pce: float
    floor: float
    p_holm: float
    parts: tuple[Part, ...]
    note: str = ""
    powerless: bool = False

    @property
    def kind(self) -> str:
        """The label without its argument."""
        return self.label.partition("(")[0]

    @property
    def wrong(self) -> tuple[Part, ...]:
        """Components with evidence of their own, corrected within the pre-rank."""
        if len(self.parts) == 1:
            return self.parts
        corrected = holm([part.p_value for part in self.parts])
        return tuple(
            part for part, p in zip(self.parts, corrected, strict=True) if p < SIGNIFICANCE
        )

    @property
    def excess(self) -> float:
        """Of the worst component with evidence of its own, or else of their mean."""
        return max((part.pce for part in self.wrong), default=self.pce) - self.floor
