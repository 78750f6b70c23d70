"""Types, by mypy with the rules of pyproject.toml."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


# All of torch takes two thirds of the time, and says of two comments more whether they are needed.
_WITHOUT_TORCH = """
[[tool.mypy.overrides]]
module = "torch.*"
follow_imports = "skip"
"""


@pytest.mark.parametrize(
    "more", [_WITHOUT_TORCH, pytest.param("", marks=pytest.mark.nightly)], ids=["few", "all"]
)
def test_mypy_has_nothing_to_say(more, tmp_path):
    pytest.importorskip("mypy")
    rules = tmp_path / "pyproject.toml"
    rules.write_text((ROOT / "pyproject.toml").read_text() + more)
    command = [sys.executable, "-m", "mypy", "--config-file", str(rules)]
    if more:
        command += ["--no-warn-unused-ignores", "--cache-dir", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
