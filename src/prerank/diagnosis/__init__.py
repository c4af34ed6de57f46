"""Diagnosis: calibration for every pre-rank, and what it means."""

from prerank.calibration.evidence import ALL, Finding
from prerank.diagnosis.diagnoses import Diagnosis, GroupedDiagnosis
from prerank.diagnosis.measurement import diagnose, diagnose_by
from prerank.diagnosis.omnibus_check import check_omnibus
from prerank.diagnosis.verdict import Verdict
from prerank.distributions.affine import sample_spread

__all__ = [
    "ALL",
    "Diagnosis",
    "Finding",
    "GroupedDiagnosis",
    "Verdict",
    "check_omnibus",
    "diagnose",
    "diagnose_by",
    "sample_spread",
]
