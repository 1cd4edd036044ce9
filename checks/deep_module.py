"""Import the script `.ci/deep` as a module."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path


def load():
    """Return a new module."""
    path = Path(__file__).parents[1] / ".ci" / "deep"
    loader = SourceFileLoader("deep", str(path))
    module = module_from_spec(spec_from_loader("deep", loader))
    sys.modules["deep"] = module  # attrs looks there
    loader.exec_module(module)
    return module
