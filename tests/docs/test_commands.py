"""What the README and the pages say works: commands and programs run, outputs come, links lead on.

Fenced blocks of a page run from top to bottom in one empty folder:

- ``sh`` and ``python`` are run, and must end with exit code 0: a block of Python, and each plain command of
  ``mosaicdd`` in a block of such, in a fork of the test, which has imported everything, and all else by the shell;
- ``python NAME.py`` is written to that file;
- a block without a word, right after one that was run, is what that prints: ``...`` stands for any
  text, and numbers with a fraction need agree to one unit of their last digit only (other libraries round
  otherwise, and what lies between two roundings is printed as either);
- all others, as ``console``, need what a test has not (a network, a batch system) and are for people.
"""

import os
import re
import shlex
import subprocess
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot  # noqa: F401 - here, and the forks have it
import pyamg  # noqa: F401 - the same
import pytest
from forked import Forked

import mosaicdd

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
_OF_SITE = {"index.md", "reference.md"}  # which only sphinx can follow
PAGES = [README, *sorted(p for p in (ROOT / "docs").glob("*.md") if p.name not in _OF_SITE)]
LINKING = [*PAGES, ROOT / "data" / "README.md", *sorted((ROOT / "benchmarks").glob("*.md"))]

_BLOCK = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
_NUMBER = re.compile(r"\d+\.\d+(?:e[+-]\d+)?|\d+e[+-]\d+")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SECONDS = 240  # of a page
# Of which all take eight seconds to half a minute.
_LONG = {
    f"{name}.md"
    for name in (
        "clusters",
        "equations",
        "files",
        "nonlinear",
        "python",
        "space",
        "time",
        "training",
    )
}


class Block(NamedTuple):
    """A fenced block: the words behind its fence, and what is in it."""

    words: tuple[str, ...]
    text: str
    follows: bool  # directly upon another


def blocks_of(text):
    """List the fenced blocks of a page."""
    blocks, end = [], 0
    for found in _BLOCK.finditer(text):
        follows = bool(blocks) and not text[end : found.start()].strip()
        blocks.append(Block(tuple(found[1].split()), found[2], follows))
        end = found.end()
    return blocks


def name_of(path):
    return str(path.relative_to(ROOT))


def run(block, folder):
    """Run a block in a folder; return what it printed."""
    if block.words == ("python",):
        code = compile(block.text, "<block>", "exec")
        return printed_by_fork(lambda: exec(code, {"__name__": "__main__"}), block.text, folder)  # noqa: S102
    return "".join(step(folder) for step in steps_of(block.text))


def by_shell(text, folder):
    """Return what a shell prints, which must end well."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    package = str(Path(mosaicdd.__file__).parents[1])
    ended = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", text],
        cwd=folder,
        env=os.environ | {"PATH": beside, "PYTHONPATH": package, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, f"{text}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def steps_of(text):
    """Return what is done for a block one after the other: command by command, if no more is asked of a shell."""
    lines = text.replace("\\\n", " ").splitlines()
    if "$" in text or not all(line.startswith(("mosaicdd ", "mpiexec ")) for line in lines):
        return [partial(by_shell, text)]
    return [step_of(line) for line in lines]


def step_of(line):
    """Return one command: of ``mosaicdd`` by a fork, whose start costs nothing."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words = list(words)
    if words[0] != "mosaicdd" or any(set(word) <= set("();<>|&") for word in words):
        return partial(by_shell, line)
    return partial(printed_by_fork, words, line)


def printed_by_fork(work, text, folder):
    """Return what some work prints in a process of its own, which must end well."""
    process = Forked(work, folder)
    printed, errors = process.communicate(_SECONDS)
    assert process.returncode == 0, f"{text}\n{printed}{errors}"
    return printed


def agrees(expected, printed):
    """Say whether a text is what a page promises."""
    pieces = re.split(rf"(\.\.\.|{_NUMBER.pattern})", expected.strip())
    pattern, numbers = "", []
    for piece in pieces:
        if piece == "...":
            pattern += r"(?:.|\n)*?"
        elif _NUMBER.fullmatch(piece):
            pattern += rf"({_NUMBER.pattern})"
            numbers.append(piece)
        else:
            pattern += re.escape(piece)
    found = re.fullmatch(pattern, printed.strip())
    return found is not None and all(
        abs(Decimal(other) - Decimal(number)) <= unit_of(number)
        for other, number in zip(found.groups(), numbers, strict=True)
    )


def unit_of(number):
    """Return one unit of the last digit of a number."""
    return Decimal((0, (1,), Decimal(number).as_tuple().exponent))


def each():
    """Return the pages, those that take long for the night."""
    return [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.nightly] * (page.name in _LONG))
        for page in PAGES
    ]


@pytest.mark.limit(_SECONDS + 30)
@pytest.mark.parametrize("page", each())
def test_a_page_s_commands_and_programs_run_and_print_what_it_says(page, tmp_path):
    printed = None
    for block in blocks_of(page.read_text()):
        if block.words in (("sh",), ("python",)):
            printed = run(block, tmp_path)
            continue
        if len(block.words) == 2 and block.words[0] == "python":
            (tmp_path / block.words[1]).write_text(block.text)
        elif not block.words and block.follows and printed is not None:
            assert agrees(block.text, printed), f"the page:\n{block.text}\nprinted:\n{printed}"
        printed = None


def headings_of(path):
    """List the anchors of a page's headings, as GitHub makes them."""
    text = _BLOCK.sub("", path.read_text())
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", LINKING, ids=name_of)
def test_a_page_s_links_lead_to_files_and_headings_that_are_there(page):
    for target in _LINK.findall(_BLOCK.sub("", page.read_text())):
        if target.startswith(("https://", "http://")):
            continue
        place, _, heading = target.partition("#")
        path = (page.parent / place).resolve() if place else page
        assert path.exists(), target
        assert path.is_relative_to(ROOT), target
        assert not heading or heading in headings_of(path), target


def test_the_readme_leads_to_every_page():
    linked = {
        (ROOT / target.partition("#")[0]).resolve() for target in _LINK.findall(README.read_text())
    }
    assert set(PAGES[1:]) <= linked


def test_the_readme_is_read_in_a_few_minutes():
    assert len(README.read_bytes()) <= 8000


def test_an_expected_output_leaves_times_open_and_holds_numbers():
    expected = "9 iterations: 1.5e-06, ... s"
    assert agrees(expected, "9 iterations: 1.6e-06, 0.31 s\n")
    assert not agrees(expected, "9 iterations: 1.7e-06, 0.31 s\n")
    assert not agrees(expected, "9 iterations: 1.5e-07, 0.31 s\n")
    assert not agrees(expected, "8 iterations: 1.5e-06, 0.31 s\n")
