"""What surrounds a command: streams that are closed, names of files that are no text, a backend of pictures."""

import os
import subprocess
import sys

import pytest

_CODE = """
import os, sys
from mosaicdd.cli.main import main
if "closed" in sys.argv:
    sys.argv.remove("closed")
    for number in range(3):
        os.close(number)
    sys.stdin = sys.stdout = sys.stderr = None
try:
    main()
except SystemExit as end:
    os._exit(end.code)
"""
_HOW = "--cells", "32x32", "--boundary", "expr:x"


@pytest.fixture
def started(tmp_path):
    """Return a function that starts ``mosaicdd ARGUMENTS`` in an environment, and returns what it said."""

    def start(*arguments, **environment):
        ended = subprocess.run(
            [sys.executable, "-c", _CODE, *arguments],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            timeout=100,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.decode()

    return start


@pytest.mark.ranks(1)
def test_streams_that_are_closed_lead_nowhere(started, tmp_path):
    assert started("closed", "solve", "-o", "out.h5", *_HOW) == ""
    assert "mosaicdd solution" in started("info", "out.h5")


@pytest.mark.ranks(1)
def test_names_that_the_locale_has_no_letters_for_are_kept_in_utf_8(started, tmp_path):
    plain = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    started("solve", "-o", "\u00f6.h5", *_HOW, **plain)
    assert "-o '\u00f6.h5'" in started("info", "\u00f6.h5", PYTHONUTF8="1")
    started("report", "\u00f6.h5", **plain)
    assert "\u00f6.h5" in (tmp_path / "\u00f6.html").read_text(encoding="utf-8")


@pytest.mark.ranks(1)
def test_pictures_need_no_backend_of_the_user(started, tmp_path):
    pytest.importorskip("matplotlib")
    started("solve", "-o", "out.h5", *_HOW)
    started("plot", "out.h5", "--reference", "none", MPLBACKEND="nonsense")
    assert (tmp_path / "out.png").exists()
