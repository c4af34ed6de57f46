"""Diagnosis: calibration for every pre-rank, and what it means."""

from prerank.diagnosis.findings import ALL, Diagnosis, Finding
from prerank.diagnosis.groups import GroupedDiagnosis, diagnose_by
from prerank.diagnosis.measurement import diagnose

__all__ = ["ALL", "Diagnosis", "Finding", "GroupedDiagnosis", "diagnose", "diagnose_by"]
