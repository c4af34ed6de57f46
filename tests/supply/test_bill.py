"""The bill of materials fits its schema, and lists what prerank needs and nothing else."""

import json
from importlib import metadata

import pytest

pytest.importorskip("cyclonedx", reason="cyclonedx is not installed: make test-supply")

import sbom  # needs cyclonedx


@pytest.fixture(scope="module")
def text():
    return sbom.text_of(sbom.bill())  # validates


def test_the_same_versions_give_the_same_bytes(text):
    assert sbom.text_of(sbom.bill()) == text


def test_the_graph_reaches_every_component(text):
    told = json.loads(text)
    assert told["specVersion"] == "1.6"
    below = {one["ref"]: one.get("dependsOn", []) for one in told["dependencies"]}
    found, open_ = set(), [told["metadata"]["component"]["bom-ref"]]
    while open_:
        new = set(below[open_.pop()]) - found
        found |= new
        open_ += new
    assert found == {one["bom-ref"] for one in told["components"]}


def test_the_core_is_told_from_the_extras(text):
    components = {one["name"]: one for one in json.loads(text)["components"]}
    core = {name for name, one in components.items() if one["scope"] == "required"}
    assert {"torch", "numpy", "scipy", "filelock", "sympy"} <= core
    assert not {"pandas", "ray", "zuko", "h5py"} & core
    assert {"pandas", "ray", "zuko", "h5py"} < components.keys()
    assert not {"pytest", "ruff", "sphinx", "uv", "prerank"} & components.keys()
    assert components["numpy"]["version"] == metadata.version("numpy")


def test_a_bill_that_does_not_fit_is_refused():
    bom = sbom.bill()
    bom.metadata.component.mime_type = "no type"  # the schema wants a slash
    with pytest.raises(SystemExit, match="does not fit the schema"):
        sbom.text_of(bom)
