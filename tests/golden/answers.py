"""Answers of the command line: their inputs, the commands, and what these print."""

import json
import re
import shutil

import numpy as np
import pandas as pd

from golden.commands import command
from golden.compare import masked, plain
from golden.fitted import make_rivers
from golden.studies import STUDIES

N, SAMPLES, TARGETS = 120, 20, ("rain", "wind")
_MIXING = np.linalg.cholesky(0.3 * np.eye(2) + 0.7)


def _diagnose(samples, *options, observed="observed.csv"):
    return ("diagnose", "--samples", samples, "--observations", observed, *options)


_FIT = ("fit", "rivers.csv", "--targets", "flow,load", "--out", "model", "--method", "network")
_IMPORT = ("datasets", "import", "rivers.csv", "--targets", "flow,load", "--out", "data")

# In this order: some commands read what others have written.
COMMANDS = {
    "fit": (
        *_FIT,
        "--strength",
        "5",
        "--max-epochs",
        "3",
        "--components",
        "1",
        "--device",
        "cpu",
        "--json",
    ),
    "predict": ("predict", "model", "new.csv", "--out", "new-predictions.csv", "--json"),
    "predict_samples": (
        *("predict", "model", "new.csv", "--out", "drawn.csv", "--quantiles", "0.1,0.975"),
        *("--samples", "4", "--json"),
    ),
    "diagnose_long": _diagnose("right_long.csv", "--json"),
    "diagnose_wide": _diagnose("right_wide.csv", "--json"),
    "diagnose_npy": _diagnose("right.npy", "--json", observed="observed.npy"),
    "diagnose_raw_units": _diagnose("right_long.csv", "--raw-units", "--json"),
    "diagnose_by": _diagnose("narrow_long.csv", "--by", "season", "--json"),
    "diagnose_check": _diagnose("narrow_long.csv", "--check", "--json"),
    "diagnose_check_passed": _diagnose("right_long.csv", "--check", "--json"),
    "diagnose_preranks": _diagnose("independent_long.csv", "--preranks", "scale+copula", "--json"),
    "diagnose_text": _diagnose("right_long.csv"),
    "diagnose_text_check": _diagnose("narrow_long.csv", "--check"),
    "diagnose_text_by": _diagnose("narrow_long.csv", "--by", "season"),
    "diagnose_text_quiet": _diagnose("independent_long.csv", "--quiet"),
    "calibrate": (
        *("calibrate", "--samples", "narrow_long.csv", "--observations", "observed.csv"),
        *("--apply", "three_long.csv", "--out", "calibrated.csv", "--preranks", "marginal+scale"),
        "--json",
    ),
    "explain": ("explain", "--json"),
    "explain_two": ("explain", "hdr+copula", "--json"),
    "datasets_import": _IMPORT,
    "datasets_list": ("datasets", "list", "--json"),
    "datasets_show": ("datasets", "show", "scm20d", "--json"),
    "datasets_show_own": ("datasets", "show", "rivers", "--folder", "data", "--json"),
    "study_status": ("study", "status", "finished", "--json"),
    "study_status_verify": ("study", "status", "finished", "--verify", "--json"),
    "study_status_interrupted": ("study", "status", "interrupted", "--json"),
    "study_status_text": ("study", "status", "interrupted"),
    "study_plan": ("study", "plan", "quick"),
    "version": ("--version",),
    "refused": _diagnose("missing.csv"),
    "misused": ("diagnose", "--samples", "right.npy"),
}
TRAINED = ("fit", "predict", "predict_samples", "calibrate")
_WRITTEN = {
    "predict": "new-predictions.csv",
    "predict_samples": "drawn.csv",
    "calibrate": "calibrated.csv",
}
_CALLS = (
    *((name,) for name in ("fit", "predict", "diagnose", "calibrate", "explain", "demo")),
    *(("datasets", name) for name in ("list", "show", "fetch", "import")),
    *(("study", name) for name in ("run", "report", "compare", "status", "plan")),
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OPTION = re.compile(r"(?:\*\s+)?(--[a-z-]+)")


def make_inputs(folder):
    """Write every file that the commands read."""
    rivers = make_rivers(100)
    rivers.to_csv(folder / "rivers.csv", index=False)
    new = rivers[["depth", "bed"]].head(5).assign(bed=["mud", "sand", "clay", "mud", "sand"])
    new.to_csv(folder / "new.csv", index=False)
    random = np.random.default_rng(1)
    observed = (random.normal(size=(N, 2)) @ _MIXING.T).round(4)
    right = (random.normal(size=(SAMPLES, N, 2)) @ _MIXING.T).round(4)
    season = np.where(np.arange(N) % 2, "summer", "[winter]")
    pd.DataFrame(observed, columns=list(TARGETS)).assign(season=season).to_csv(
        folder / "observed.csv", index=False
    )
    np.save(folder / "observed.npy", observed)
    np.save(folder / "right.npy", right)
    samples = {
        "right": right,
        "narrow": (0.4 * right).round(4),
        "independent": (right @ np.linalg.inv(_MIXING).T).round(4),
    }
    samples["three"] = samples["narrow"][:, :3]  # rows to calibrate
    for name, values in samples.items():
        rows, numbers = np.meshgrid(np.arange(values.shape[1]), np.arange(SAMPLES))
        long = {"row": rows.ravel(), "sample": numbers.ravel()}
        long |= {target: values[..., d].ravel() for d, target in enumerate(TARGETS)}
        pd.DataFrame(long).to_csv(folder / f"{name}_long.csv", index=False)
    wide = {
        f"{target}_{s + 1}": right[s, :, d]
        for d, target in enumerate(TARGETS)
        for s in range(SAMPLES)
    }
    pd.DataFrame(wide).to_csv(folder / "right_wide.csv", index=False)
    for name in ("finished", "interrupted"):
        shutil.copytree(STUDIES / name, folder / name)


def make_answers(folder):
    """Run all commands in a folder: exit code, and what was printed on standard output."""
    make_inputs(folder)
    found = {}
    for name, words in COMMANDS.items():
        done = command(*words, cwd=folder)
        answer = {"code": done.code}
        if "--json" in words and done.text.startswith(("{", "[")):
            answer["json"] = json.loads(done.text)
        elif "--json" in words:  # a command that fails must not hide the answers of the others
            answer["error"] = done.error
        else:
            text = re.sub(r"(?<=^prerank )\S+$", "<masked>", done.text.rstrip("\n"))
            answer["text"] = [line.rstrip() for line in text.split("\n")]
        if name in _WRITTEN and (folder / _WRITTEN[name]).is_file():
            answer["table"] = plain(pd.read_csv(folder / _WRITTEN[name]))
        found[name] = masked(answer, folder)
    return found


def make_options(folder):
    """Collect the options of every command, as `--help` lists them."""
    found = {}
    for words in _CALLS:
        done = command(*words, "--help", cwd=folder)
        assert done.code == 0, words
        lines = [line.strip("│ ") for line in _COLOUR.sub("", done.text).splitlines()]
        matches = map(_OPTION.match, lines)
        found[" ".join(words)] = sorted({match[1] for match in matches if match})
    return found
