"""No number without its file: what the README and the pages measure stands where they link to.

A number of a table's row stands, with all others of its row and in their order, in one line of one file
under ``benchmarks/`` that the section links to, and in the column of its own title if there is one; one in
a sentence stands in one of these files. Files there
are written by scripts. A bound may stand in a test that its row or its section names instead. Numbers
that were not measured, as the side of a subdomain, are listed with their words in ``given.txt``.

In the README every number counts; on the other pages those in tables of sections that link to such a
file, and elsewhere those that have a fraction, an exponent or a unit. Code is not looked at: what stands there is run by `test_commands`.
"""

import itertools
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md")), ROOT / "data" / "README.md"]
GIVEN = Path(__file__).with_name("given.txt")

_NUMBER = re.compile(r"(?<![\w.^/-])\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w/])")
_UNIT = re.compile(
    r" ?%| (?:s|ms|seconds|minutes|[kMG]i?B|bytes|times|iterations|steps|parameters|samples)\b"
)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^)#\s]*)[^)\s]*\)")
_TEST = re.compile(r"`((?:tests|benchmarks)/[\w/]+\.py)`")
_HEADING = re.compile(r"^#+ ", re.MULTILINE)
_RULE = re.compile(r"^\|[-|: ]+\|$")


class Found(NamedTuple):
    """A number on a page: what is written, and where."""

    text: str
    line: int
    words: str  # around it


def value(text):
    return float(text.replace(",", ""))


def unit_of_last_digit(text):
    digits, _, power = text.replace(",", "").partition("e")
    places = len(digits.partition(".")[2])
    return 10.0 ** (int(power or 0) - places)


def agrees(text, other):
    """Say whether a number is another one, rounded to its own digits; a count is not rounded."""
    near = 0.5001 * unit_of_last_digit(text) if len(text) > 1 else 0.0
    return abs(value(text) - value(other)) <= near


def stands(text, source):
    """Say whether a number is one of a source's."""
    return any(agrees(text, other) for other in _NUMBER.findall(source))


def stand_in_order(texts, line):
    """Say whether numbers are some of a line's, one after the other."""
    others = iter(_NUMBER.findall(line))
    return all(any(agrees(text, other) for other in others) for text in texts)


@cache
def lines_of(path):
    return path.read_text().splitlines()


def blank(text, pattern):
    """Put blanks in the place of matches, so that the rest stays where it is."""
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def given_words():
    """List the words with numbers that nobody has measured: pairs of a page and its text."""
    rows = [line.partition(": ") for line in GIVEN.read_text().splitlines() if line]
    return [(page, words) for page, _, words in rows]


def unfounded(path, text, strict):
    """List the numbers of a page that stand in none of the files that they should be in."""
    page = str(path.relative_to(ROOT))
    for words in (words for name, words in given_words() if name == page):
        text = text.replace(words, " " * len(words))
    text = blank(text, _FENCE)
    starts = [0, *(found.start() for found in _HEADING.finditer(text)), len(text)]
    lost, line = [], 1
    for start, end in itertools.pairwise(starts):
        section = text[start:end]
        linked = [(path.parent / target).resolve() for target in _LINK.findall(section)]
        files = [f for f in linked if f.suffix in (".md", ".csv") and f.parent.name != "docs"]
        files = [f for f in files if (ROOT / "benchmarks") in f.parents and f.exists()]
        rows, titles = section.splitlines(), []
        for number, row in enumerate(rows):
            tests = [ROOT / name for name in _TEST.findall(row if row[:1] == "|" else section)]
            plain = blank(blank(row, _CODE), _LINK)
            found = [
                Found(m[0], line + number, plain[max(0, m.start() - 30) : m.end() + 20])
                for m in _NUMBER.finditer(plain)
                if strict or (row[:1] == "|" and files) or _looks_measured(plain, m)
            ]
            header = number + 1 < len(rows) and _RULE.match(rows[number + 1])
            if header:
                titles = cells_of(row)
            if not found or (header and not strict):
                continue
            if row[:1] == "|":
                cells = dict(zip(titles, cells_of(plain), strict=False))
                lost += _lost_of_row(found, cells, files, tests)
            else:
                whole = "\n".join("\n".join(lines_of(f)) for f in [*files, *tests])
                lost += [one for one in found if not stands(one.text, whole)]
        line += section.count("\n")
    return lost


def _looks_measured(row, found):
    return bool(re.search(r"[.e]", found[0]) or _UNIT.match(row, found.end()))


def _lost_of_row(found, cells, files, tests):
    """Return what no line of a file holds together, and no test holds."""
    if tests:  # whose bounds these are; whole numbers there are ranks, sizes and the like
        whole = "\n".join("\n".join(lines_of(f)) for f in tests)
        return [
            one for one in found if re.search(r"[.e]", one.text) and not stands(one.text, whole)
        ]
    for file in files:
        for source, line in rows_of(file):
            columns = [title for title in cells if title in source]
            if stand_in_order([one.text for one in found], line) and all(
                stands(text, source[title])
                for title in columns
                for text in _NUMBER.findall(cells[title])
            ):
                return []
    return found


def cells_of(row):
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


@cache
def rows_of(path):
    """List the lines of a file, each with its cells by their titles if it is of a table."""
    rows, header = [], []
    for number, line in enumerate(lines := lines_of(path)):
        if number + 1 < len(lines) and _RULE.match(lines[number + 1]):
            header = cells_of(line)
        elif not line.startswith("|"):
            header = []
        rows.append((dict(zip(header, cells_of(line), strict=False)), line))
    return rows


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_number_of_a_page_stands_in_a_file_that_it_links_to(path):
    lost = unfounded(path, path.read_text(), strict=path == README)
    assert not lost, "\n".join(
        f"{path.name}:{one.line}: {one.text} in {one.words.strip()!r} stands in no file that its section "
        "links to: link the table it is from, or list its words in tests/docs/given.txt if nothing "
        "was measured"
        for one in lost
    )


def test_a_changed_digit_in_the_readme_is_found():
    text = README.read_text()
    code = [found.span() for pattern in (_FENCE, _CODE, _LINK) for found in pattern.finditer(text)]
    missed = []
    numbers = [found.span() for found in _NUMBER.finditer(text)]
    for found in re.finditer(r"\d", text):
        within = [any(a <= found.start() < b for a, b in spans) for spans in (numbers, code)]
        if within != [True, False]:
            continue
        other = str((int(found[0]) + 1) % 10)
        changed = text[: found.start()] + other + text[found.end() :]
        if not unfounded(README, changed, strict=True) and not missing_words(README, changed):
            missed.append(text[max(0, found.start() - 20) : found.end() + 20])
    assert not missed


def missing_words(path, text):
    """List the words of ``given.txt`` that a page does not hold."""
    page = str(path.relative_to(ROOT))
    return [words for name, words in given_words() if name == page and words not in text]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_given_words_are_on_their_pages(path):
    assert not missing_words(path, path.read_text())


def test_a_number_is_found_rounded_and_only_then():
    line = "| laplace | 9 | 0.2876 | 9.4e-09 | 1,088 |"
    for text in ("0.288", "0.29", "9.4e-9", "9", "1,088", "1088"):
        assert stands(text, line)
    for text in ("0.287", "9.5e-9", "8", "1.09"):
        assert not stands(text, line)
    assert stand_in_order(["9", "0.288", "1,088"], line)
    assert not stand_in_order(["0.288", "9"], line)
