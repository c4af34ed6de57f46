"""Parts of `experiments/evidence.py`: one module each, with a function `lines(data_sets)`."""
