"""Lint and format, by ruff with the rules of ruff.toml; and names, which say one thing each."""

import ast
import collections
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_no_class_name_is_defined_twice():
    places = collections.defaultdict(list)
    for path in sorted((ROOT / "mosaicdd").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: at for name, at in places.items() if len(at) > 1} == {}


def test_no_local_is_a_pronoun():
    pronouns, places = {"one", "found", "given", "some"}, set()
    for path in sorted((ROOT / "mosaicdd").rglob("*.py")):
        inside = [node for node in ast.walk(ast.parse(path.read_text())) if _is_function(node)]
        for node in (part for function in inside for part in ast.walk(function)):
            stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            name = node.id if stored else node.arg if isinstance(node, ast.arg) else None
            if name in pronouns:
                places.add(f"{path.relative_to(ROOT)}:{node.lineno} {name}")
    assert places == set()


def _is_function(node):
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
