"""Check an installed wheel: its version, its type marker, and what importing it loads."""

import sys
from importlib import metadata, resources

import prerank

loaded = {"matplotlib", "pandas", "sklearn"} & sys.modules.keys()
assert not loaded, f"importing prerank also imports {', '.join(sorted(loaded))}"

installed = metadata.version("prerank")
assert prerank.__version__ == installed, (
    f"prerank.__version__ is {prerank.__version__}, the wheel says {installed}"
)

assert "site-packages" in str(prerank.__file__), f"not the wheel: {prerank.__file__}"
assert resources.files(prerank).joinpath("py.typed").is_file(), "py.typed is not in the wheel"

print(f"the wheel of prerank {installed} is in order")
