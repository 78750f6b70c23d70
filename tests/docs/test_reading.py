"""docs/reading.md: the steps of a coefficient, a boundary value and a residual, in a solve that is followed."""

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import mosaicdd as m

PACKAGE = Path(m.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "reading.md"
_STEP = re.compile(r"\| `([\w/]+\.py)` \| `([\w.]+)` \|$", re.MULTILINE)
_MOST = 10  # steps of a way


def folders(root=PACKAGE):
    """Draw which folder of the package imports which: whoever needs the fewest, through others too, comes first."""
    names = sorted(path.name for path in root.iterdir() if (path / "__init__.py").exists())
    needs = {name: set() for name in names}
    for name in names:
        for path in (root / name).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                module = getattr(node, "module", None) if isinstance(node, ast.ImportFrom) else None
                needs[name] |= {part for part in (module or "").split(".")[1:2] if part in needs}
        needs[name] -= {name}

    def reached(name):
        seen, new = set(), {name}
        while new:
            seen |= new
            new = set().union(*(needs[each] for each in new)) - seen
        return seen

    ordered = sorted(names, key=lambda name: (len(reached(name)), len(needs[name]), name))
    width = max(map(len, names))
    return "\n".join(
        f"{name:{width}}  <-  {', '.join(each for each in ordered if each in needs[name])}".rstrip(
            " <-"
        )
        for name in ordered
    )


def ways():
    """Return the steps (file, function) of each section."""
    sections = PAGE.read_text().split("\n## ")[1:]
    return {section.partition("\n")[0]: _STEP.findall(section) for section in sections}


@pytest.fixture(scope="module")
def called():
    """Return when each (file, function) of the package was first called in a solve in a medium."""
    order = {}

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            place = Path(code.co_filename).relative_to(PACKAGE).as_posix(), code.co_qualname
            order.setdefault(place, len(order))

    a = np.exp(np.random.default_rng(0).standard_normal((65, 81)))
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        sides = {"left": m.Dirichlet("y"), "right": m.Neumann(1.0)}
        solution = m.solve(m.Problem((64, 80), "diffusion", {"a": a, "f": 1.0}, sides), "exact")
    finally:
        sys.setprofile(before)
    assert solution.converged
    return order


@pytest.mark.parametrize("way", ways())
def test_the_steps_of_a_way_come_in_the_page_s_order(way, called):
    steps = ways()[way]
    assert 5 <= len(steps) <= _MOST
    for file, _ in steps:
        assert (PACKAGE / file).exists(), file
    missing = [step for step in steps if step not in called]
    assert not missing, f"never called: {missing}"
    times = [called[step] for step in steps]
    assert times == sorted(times), list(zip(times, steps, strict=True))


def test_every_row_of_the_page_is_a_step():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == sum(map(len, ways().values())) + len(ways())  # and the headings


def test_folders_import_each_other_as_they_are_drawn():
    assert folders() in (PAGE.parent / "contributing.md").read_text()


def test_files_that_pages_name_exist():
    root = PAGE.parents[1]
    folders_of_files = ("mosaicdd", "benchmarks", "scripts", "tests", "data")
    files = [str(path) for folder in folders_of_files for path in (root / folder).rglob("*.py")]
    lost = []
    for page in sorted(PAGE.parent.glob("*.md")):
        text = page.read_text()
        for name in set(re.findall(r"`([a-z_/]+\.py)`", text)):
            shown = f"```python {name}\n" in text  # a file that the page has the user write
            if not shown and not any(file.endswith(f"/{name}") for file in files):
                lost.append(f"{page.name}: {name}")
    assert lost == []
