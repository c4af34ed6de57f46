"""Every public name of the golden file can still be imported from its place."""

import pytest

import prerank
from golden.compare import read
from golden.names import imported

GOLDEN = read("names.json")


@pytest.mark.parametrize("module", GOLDEN["modules"])
def test_names_of_a_module(module):
    for name in GOLDEN["modules"][module]:
        assert imported(f"{module}.{name}") is not None, name


@pytest.mark.parametrize("dotted", GOLDEN["classes"])
def test_classes_of_the_reference(dotted):
    assert isinstance(imported(dotted), type)


def test_the_package_lists_all_names():
    assert set(GOLDEN["modules"]["prerank"]) <= set(prerank.__all__)
