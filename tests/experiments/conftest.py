"""Scripts of `experiments/` import each other by name: their folders are put on the path."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "experiments"
sys.path += [str(FOLDER), str(FOLDER / "frontier")]

# A copy of the source may come without them.
collect_ignore_glob = [] if FOLDER.exists() else ["test_*.py"]
