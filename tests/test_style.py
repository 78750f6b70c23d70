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
