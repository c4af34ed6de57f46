"""Parts of `experiments/evidence.py`, which says what a part has."""
