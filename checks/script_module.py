"""Import a script of `.ci/` that has no suffix as a module."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path


def load(name):
    """Return a new module of the script `.ci/NAME`."""
    path = Path(__file__).parents[1] / ".ci" / name
    name = f"script_{name}"  # a package of checks/ may have the name of its script
    loader = SourceFileLoader(name, str(path))
    module = module_from_spec(spec_from_loader(name, loader))
    sys.modules[name] = module  # attrs looks there
    loader.exec_module(module)
    return module
