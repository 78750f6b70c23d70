"""The package's modules, parsed once for all tests that look at them."""

import ast
from functools import cache
from pathlib import Path

import mosaicdd

PACKAGE = Path(mosaicdd.__file__).parent


@cache
def trees():
    """Return each module's tree by its name within the package."""
    paths = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    return {name.removesuffix(".__init__"): ast.parse(p.read_text()) for name, p in paths.items()}


@cache
def nodes():
    """Return the nodes of all of them, each with its module's name."""
    return [(name, node) for name, tree in trees().items() for node in ast.walk(tree)]
