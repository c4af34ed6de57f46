"""A problem has the published splits, standardised by their own training rows."""

import numpy as np
import pytest
import torch

from prerank.datasets import open_dataset, published_split
from prerank.errors import InputError
from prerank.study.protocols import Problem
from prerank.training import Run
from study.tiny import LABELS, tiny, write_table

SEEDS = (866, 3)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path))
    return tmp_path


def problem(name="ar1", **changes):
    return Problem(name, tiny(seeds=SEEDS, **changes))


@pytest.mark.parametrize("protocol", ["exact", "published"])
def test_rows_are_those_of_the_published_splits(protocol):
    found = problem(protocol=protocol, strengths="auto")
    splits = [published_split(3000, seed) for seed in SEEDS]
    for number, split in enumerate(splits):
        assert torch.equal(found.data.train[number], split.train)
        assert torch.equal(found.rows["validation"][number], split.validation)
        assert torch.equal(found.rows["test"][number], split.test)
        seen = {*split.train.tolist(), *split.validation.tolist()}
        assert not seen & set(split.test.tolist())


def test_values_are_standardised_by_the_training_rows_of_each_split():
    table, found = open_dataset("ar1"), problem()
    runs = [Run(SEEDS[1], 1), Run(SEEDS[0], 0), Run(SEEDS[1], 1, 30.0)]
    for part in ("validation", "test"):
        x, y = found.part(part, runs)
        for m, run in enumerate(runs):
            split = published_split(3000, SEEDS[run.split])
            for values, own in ((table.x, x), (table.y, y)):
                train = values[split.train].astype(np.float64)
                rows = values[getattr(split, part)]
                if own is x:  # held to the range that was seen
                    rows = rows.clip(train.min(0), train.max(0))
                expected = (rows - train.mean(0)) / train.std(0)
                # Values of a few standard deviations, rounded once to float32: 2^-22.
                np.testing.assert_allclose(own[m].numpy(), expected, rtol=0, atol=2**-21)


def test_only_the_exact_protocol_holds_inputs_to_the_range_that_was_seen(folder):
    write_table(folder, "pair", 2)
    clipped, free = (problem("pair", protocol=p, strengths="auto") for p in ("exact", "published"))
    for number in range(len(SEEDS)):
        train = free.data.x[number, free.data.train[number]]
        low, high = train.amin(0), train.amax(0)
        inside = (free.data.x[number] >= low) & (free.data.x[number] <= high)
        assert not inside.all()  # or there would be nothing to see
        assert torch.equal(clipped.data.x[number], free.data.x[number].clamp(low, high))
    assert torch.equal(clipped.data.y, free.data.y)


def test_the_network_is_that_of_the_plan():
    found = problem(n_components=2, hidden=(5, 3)).network
    # Layers 2-5-3-h with biases; h: 2 weights, 2 x 3 means, 2 x 6 entries of triangular factors.
    assert found.n_parameters == 2 * 5 + 5 + 5 * 3 + 3 + (3 + 1) * (2 + 6 + 12)


def test_runs_are_every_strength_with_every_seed():
    assert problem().runs((0.0, 3.0)) == [
        Run(866, 0, 0.0),
        Run(3, 1, 0.0),
        Run(866, 0, 3.0),
        Run(3, 1, 3.0),
    ]


@pytest.mark.parametrize(
    ("dim", "missing"), [(1, {"scale", "dependency"}), (2, {"dependency"}), (3, set())]
)
def test_preranks_are_those_of_the_paper_that_apply(folder, dim, missing):
    write_table(folder, "small", dim)
    found = problem("small")
    assert [p.label for p in found.preranks] == [label for label in LABELS if label not in missing]
    for label in LABELS:
        reason = found.obstacle(label)
        assert (reason is None) == (label not in missing)
        assert reason is None or label in reason


@pytest.mark.parametrize("variant", ["dependency", "marginal+dependency", "pca(3)", "hdr+pca(5)"])
def test_obstacles_are_told(folder, variant):
    write_table(folder, "pair", 2)
    reason = problem("pair").obstacle(variant)
    assert isinstance(reason, str)
    assert "D = 2" in reason


@pytest.mark.parametrize("variant", ["none", "marginal", "marginal+hdr", "pca(2)", "pca(0.8)+hdr"])
def test_what_can_be_had_has_no_obstacle(folder, variant):
    write_table(folder, "pair", 2)
    assert problem("pair").obstacle(variant) is None


def test_a_dataset_that_is_not_there_is_named(folder):
    with pytest.raises(InputError, match=r"absent\.parquet"):
        problem("absent")


def test_a_dataset_of_too_few_rows_is_refused(folder):
    write_table(folder, "few", 2, n=8)
    with pytest.raises(InputError, match="too few"):
        problem("few")
