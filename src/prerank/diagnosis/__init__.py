"""Diagnosis: calibration for every pre-rank, and what it means."""

from prerank.calibration.evidence import ALL, Finding
from prerank.diagnosis.comparison import Comparison, compare
from prerank.diagnosis.diagnoses import Diagnosis, GroupedDiagnosis
from prerank.diagnosis.measurement import diagnose, diagnose_by
from prerank.diagnosis.verdict import Verdict
from prerank.distributions.affine import sample_spread

__all__ = [
    "ALL",
    "Comparison",
    "Diagnosis",
    "Finding",
    "GroupedDiagnosis",
    "Verdict",
    "compare",
    "diagnose",
    "diagnose_by",
    "sample_spread",
]
