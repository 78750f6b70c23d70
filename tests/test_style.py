"""Lint and format, by ruff with the rules of ruff.toml; and names, which say one thing each."""

import ast
import collections
import subprocess
import sys
from pathlib import Path

import pytest
from package_trees import nodes

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("arguments", [("check",), ("format", "--check")], ids=" ".join)
def test_ruff_has_nothing_to_say(arguments):
    ended = subprocess.run(
        [sys.executable, "-m", "ruff", *arguments, "--no-cache", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_repository_holds_no_symbolic_links():
    """A link to a folder outside, as an environment, would replace that folder where it is checked out."""
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout")
    listed = subprocess.run(
        ["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert [row for row in listed.stdout.splitlines() if row.startswith("120000 ")] == []


def test_no_class_name_is_defined_twice():
    places = collections.defaultdict(list)
    for name, node in nodes():
        if isinstance(node, ast.ClassDef):
            places[node.name].append(f"{name}:{node.lineno}")
    assert {name: at for name, at in places.items() if len(at) > 1} == {}


def test_no_local_is_a_pronoun():
    pronouns, places = {"one", "found", "given", "some"}, set()
    for module, function in nodes():
        for node in ast.walk(function) if _is_function(function) else ():
            stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            name = node.id if stored else node.arg if isinstance(node, ast.arg) else None
            if name in pronouns:
                places.add(f"{module}:{node.lineno} {name}")
    assert places == set()


def _is_function(node):
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
