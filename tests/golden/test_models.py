"""Saved models load and predict the same; fitting again gives the same parameters."""

import pytest

import prerank
from golden.compare import FOLDER, check_same, plain, read
from golden.fitted import KINDS, make_model, make_predictions


@pytest.fixture(params=KINDS)
def kind(request):
    """Name of a model; the flow needs zuko, which is an extra."""
    if request.param == "flow":
        pytest.importorskip("zuko")
    return request.param


def test_a_saved_model_predicts_the_same(kind):
    model = prerank.load_model(FOLDER / "models" / kind)
    expected = read("models", kind, "expected.json")
    check_same(make_predictions(model, kind), expected, trained=True)


def test_a_loaded_model_can_be_saved_and_loaded(kind, tmp_path):
    prerank.load_model(FOLDER / "models" / kind).save(tmp_path / "copy")
    model = prerank.load_model(tmp_path / "copy")
    expected = read("models", kind, "expected.json")
    check_same(make_predictions(model, kind), expected, trained=True)


def test_fitting_again_gives_the_same_parameters(kind):
    saved, again = prerank.load_model(FOLDER / "models" / kind), make_model(kind)
    check_same(plain(again.theta_), plain(saved.theta_), trained=True)
    assert again.get_params() == saved.get_params()
    expected = read("models", kind, "expected.json")
    check_same(make_predictions(again, kind), expected, trained=True)
