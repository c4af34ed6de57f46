"""Every public name of the golden file can still be imported from its place."""

import prerank
from golden.compare import read
from golden.names import imported

GOLDEN = read("names.json")


def test_names_of_the_modules():
    for module, names in GOLDEN["modules"].items():
        for name in names:
            assert imported(f"{module}.{name}") is not None, f"{module}.{name}"


def test_classes_of_the_reference():
    for dotted in GOLDEN["classes"]:
        assert isinstance(imported(dotted), type), dotted


def test_the_package_lists_all_names():
    assert set(GOLDEN["modules"]["prerank"]) <= set(prerank.__all__)
