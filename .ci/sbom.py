"""Write the bill of materials of prerank, CycloneDX 1.6 in JSON: `sbom.py FILE`.

It lists what is installed here of all that prerank needs, directly or not: `required` is the core,
`optional` what only the extras below add. The hashes of the files are in requirements*.txt. The
same versions give the same bytes: there is no time of writing, and the serial number is a hash.
"""

import json
import sys
from importlib import metadata
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from link_requirements import active
from packageurl import PackageURL
from packaging.utils import canonicalize_name

EXTRAS = frozenset({"app", "flows", "ray", "netcdf"})

Node = tuple[str, frozenset[str]]  # a distribution, with some of its extras


def needs(node: Node) -> set[Node]:
    """Distributions that one needs, with the extras of them that it needs."""
    name, extras = node
    lines = active(metadata.distribution(name).requires, set(extras))
    return {(str(canonicalize_name(one.name)), frozenset(one.extras)) for one in lines}


def reached(start: Node) -> set[Node]:
    """All that one needs, directly or through others, and itself."""
    found, open_ = {start}, [start]
    while open_:
        new = needs(open_.pop()) - found
        found |= new
        open_ += new
    return found


def licence(info: metadata.PackageMetadata) -> list[License]:
    """What the distribution says: an expression, a short text, or the names of its classifiers."""
    if expression := info.get("License-Expression"):
        return [LicenseFactory().make_with_expression(expression)]
    classes = [one for one in info.get_all("Classifier", []) if one.startswith("License ::")]
    names = {one.rpartition(" :: ")[2] for one in classes}
    text = (info.get("License") or "").strip()
    if text not in {"", "UNKNOWN"} and "\n" not in text and len(text) < 50:
        names = {text}
    return [LicenseFactory().make_with_name(name) for name in sorted(names)]


def component(name: str, scope: ComponentScope | None = None) -> Component:
    """One distribution."""
    found = metadata.distribution(name)
    version = found.version.partition("+")[0]  # the label of a build is no part of a release
    url = PackageURL("pypi", None, name, version)
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=str(url),
        purl=url,
        scope=scope,
        licenses=licence(found.metadata),
    )


def bill() -> Bom:
    """The graph of dependencies of prerank with its extras."""
    top = "prerank"
    core = {name for name, _ in reached((top, frozenset()))}
    nodes = reached((top, EXTRAS))
    parts = {
        name: component(name, ComponentScope.REQUIRED if name in core else ComponentScope.OPTIONAL)
        for name in sorted({name for name, _ in nodes} - {top})
    }
    parts[top] = component(top)
    bom = Bom(components=[part for name, part in parts.items() if name != top])
    bom.metadata.component = parts[top]
    for name, part in parts.items():
        below = {other for node in nodes if node[0] == name for other, _ in needs(node)} - {name}
        bom.register_dependency(part, [parts[other] for other in sorted(below)])
    return bom


def text_of(bom: Bom) -> str:
    """The bill as JSON that depends on its content alone, checked against the schema."""
    told = json.loads(JsonV1Dot6(bom).output_as_string())
    del told["metadata"]["timestamp"], told["serialNumber"]
    content = json.dumps(told, sort_keys=True)
    told["serialNumber"] = f"urn:uuid:{uuid5(NAMESPACE_URL, content)}"
    text = json.dumps(told, indent=2, sort_keys=True) + "\n"
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"the bill of materials does not fit the schema: {error}")
    return text


def main(to: Path) -> None:
    """Write the bill, and say what it has."""
    bom = bill()
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(text_of(bom))
    required = sum(part.scope == ComponentScope.REQUIRED for part in bom.components)
    print(f"{to}: {len(bom.components)} components, of which {required} belong to the core")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
