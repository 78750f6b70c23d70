"""docs/promises.md: one line for each promise, with a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "promises.md"
_TESTS = re.compile(r"`((?:tests|benchmarks)/[\w/]+\.py)`")
_MOST = 24  # words of a promise: what a reader takes in at once


def promises():
    """Return the rows (promise, tests) of the page's tables."""
    section = PAGE.read_text().partition("\n## Promises, and the tests that keep them\n")[2]
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    cells = [row.strip("| ").rsplit(" | ", 1) for row in rows]
    return [(promise, tests) for promise, tests in cells if promise != "promise"]


def test_each_promise_names_tests_that_exist():
    assert len(promises()) > 60
    for promise, tests in promises():
        names = _TESTS.findall(tests)
        assert any(name.startswith("tests/") for name in names), promise
        assert ", ".join(f"`{name}`" for name in names) == tests, promise
        assert [name for name in names if not (ROOT / name).is_file()] == [], promise


def test_a_promise_is_short_and_given_once():
    words = [promise for promise, _ in promises()]
    assert [promise for promise in words if len(promise.split()) > _MOST] == []
    assert len(set(words)) == len(words)
