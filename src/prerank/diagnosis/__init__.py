"""Diagnosis: calibration for every pre-rank, and what it means."""

from prerank.calibration.error_table import ALL, Finding
from prerank.diagnosis.comparison import Comparison, compare
from prerank.diagnosis.diagnoser import Diagnoser
from prerank.diagnosis.diagnoses import Diagnosis
from prerank.diagnosis.equivalence import Equivalence
from prerank.diagnosis.grouped_diagnosis import GroupedDiagnosis
from prerank.diagnosis.measurement import diagnose, diagnose_by
from prerank.diagnosis.monitors import Monitor
from prerank.diagnosis.omnibus_check import check_omnibus
from prerank.diagnosis.regional_diagnosis import WhereDiagnosis
from prerank.diagnosis.verdict import Verdict
from prerank.diagnosis.where import diagnose_where, regions_of_pits
from prerank.distributions.affine import sample_spread

__all__ = [
    "ALL",
    "Comparison",
    "Diagnoser",
    "Diagnosis",
    "Equivalence",
    "Finding",
    "GroupedDiagnosis",
    "Monitor",
    "Verdict",
    "WhereDiagnosis",
    "check_omnibus",
    "compare",
    "diagnose",
    "diagnose_by",
    "diagnose_where",
    "regions_of_pits",
    "sample_spread",
]
