"""Write all golden files anew: `python tests/golden/write.py [PART ...]`.

Parts are names, models, studies, answers and results; all of them by default.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PRERANK_COMPILED"] = "0"


def write_names():
    """Write the public names."""
    from golden.compare import write
    from golden.names import make_names

    write(make_names(), "names.json")


def write_models():
    """Write the saved models, and what they predict."""
    from golden.compare import write
    from golden.fitted import KINDS, write_model

    for kind in KINDS:
        expected = write_model(kind)
        write(expected, "models", kind, "expected.json")


def write_studies():
    """Write the folders of studies, and the tables of their reports."""
    from golden import studies

    shutil.rmtree(studies.STUDIES, ignore_errors=True)
    for name in studies.PLANS:
        studies.make_study(name, studies.STUDIES / name)
    studies.make_interrupted(studies.STUDIES / "interrupted")
    with tempfile.TemporaryDirectory() as place:
        for name in studies.PLANS:
            target = studies.STUDIES / "reports" / name
            target.mkdir(parents=True)
            for table in studies.make_report(studies.STUDIES / name, Path(place) / name):
                shutil.copy(table, target)
        shutil.copy(studies.make_comparison(Path(place) / "compared.csv"), target.parent)


def write_answers():
    """Write the answers of the command line."""
    from golden.answers import make_answers, make_options
    from golden.compare import FOLDER, write

    shutil.rmtree(FOLDER / "json", ignore_errors=True)
    with tempfile.TemporaryDirectory() as place:
        for name, answer in make_answers(Path(place)).items():
            write(answer, "json", f"{name}.json")
        write(make_options(Path(place)), "json", "options.json")


def write_results():
    """Write diagnoses, scores, PITs and penalties."""
    from golden import diagnoses
    from golden.compare import write

    for name in ("diagnoses", "scores", "pits", "penalties"):
        write(getattr(diagnoses, f"make_{name}")(), "results", f"{name}.json")


PARTS = {
    "names": write_names,
    "models": write_models,
    "studies": write_studies,
    "answers": write_answers,
    "results": write_results,
}

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root / "src"), str(root / "tests")]
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
