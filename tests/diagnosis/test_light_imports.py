"""Verdicts need neither matplotlib nor pandas."""

import subprocess
import sys

BLOCKED = ("matplotlib", "pandas", "jinja2", "sklearn", "pyarrow", "safetensors", "rich", "typer")

SCRIPT = f"""
import sys
sys.modules.update(dict.fromkeys({BLOCKED!r}))
import torch, prerank
from torch.distributions import MultivariateNormal

y = 2 * torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
diagnosis = prerank.diagnose(MultivariateNormal(torch.zeros(300, 3), torch.eye(3)), y)
assert diagnosis.findings[0].prerank == "marginal"
verdict = diagnosis.verdict()
assert verdict.status == "bad", verdict
assert "predictions too narrow in every target" in str(verdict)
assert "Units: original." in verdict.points
groups = prerank.diagnosis.diagnose_by(MultivariateNormal(
    torch.zeros(300, 3), torch.eye(3)), y, ["a", "b"] * 150, preranks="marginal")
assert groups.verdict().status == "bad"
print(diagnosis)
"""


def run(script):
    words = [sys.executable, "-c", script]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_findings_and_verdicts_need_no_plotting_and_no_tables():
    done = run(SCRIPT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Strongly miscalibrated: predictions too narrow")
    assert any(line.split()[:2] == ["prerank", "component"] for line in lines)


def test_decisions_are_plain_data():
    script = f"""
import sys
sys.modules.update(dict.fromkeys({BLOCKED!r}))
from prerank.calibration import DeviationShape
from prerank.calibration.decision import decide
from prerank.calibration.evidence import Evidence, Part
assert not any(name.startswith(("prerank.report", "prerank.diagnosis")) for name in sys.modules)
part = Part("rain", 0.1, 1e-4, DeviationShape(True, 0, 1))
assert decide([Evidence("marginal", 0.1, 0.01, 1e-4, (part,))], n=500).status == "bad"
"""
    done = run(script)
    assert done.returncode == 0, done.stderr
