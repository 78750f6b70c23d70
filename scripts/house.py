"""Measure the package's own structure: files, lines, signatures, and what a solve wires together.

Usage: house.py [COMMIT ...] prints a column for each commit and one for the working tree, and writes
``benchmarks/house.md``; house.py --folders prints which folder needs which. Run in the repository.
"""

import ast
import collections
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tables import table

ROOT = Path(__file__).resolve().parents[1]
_ROWS = {
    "package files": lambda house: len(house.files),
    "lines of the package": lambda house: sum(house.lines),
    "lines of a file: median": lambda house: int(statistics.median(house.lines)),
    "lines of a file: 90th percentile": lambda house: house.percentile(house.lines, 0.9),
    "files of at most 50 lines": lambda house: sum(1 for n in house.lines if n <= 50),
    "lines of cli/": lambda house: house.lines_of("cli"),
    "lines of a function: median": lambda house: int(statistics.median(house.functions)),
    "lines of a function: 90th percentile": lambda house: house.percentile(house.functions, 0.9),
    "parameters of the longest signature": lambda house: max(house.parameters),
    "class names defined more than once": lambda house: house.twins(),
    "locals named one, found, given, some": lambda house: house.pronouns(),
    "classes that a solve makes objects of": lambda house: house.wired("schwarz", "parallel"),
    "... that one in a medium does, of all folders": lambda house: house.wired("", medium=True),
    "imports of the shortest useful program": lambda house: house.imports(),
}
# The shortest program that solves and has the field, as far as each tree has one.
_PROGRAM = """
import mosaicdd
print(mosaicdd.solve(mosaicdd.Problem((512, 512), "laplace", sides=mosaicdd.Dirichlet("x"))).field)
"""
_WIRED = """
import sys
made = set()
def trace(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "__init__":
        kind = type(frame.f_locals.get("self"))
        if kind.__module__.startswith({folders}):
            made.add(kind)
sys.setprofile(trace)
sys.argv = ["mosaicdd", "solve", "-o", "{path}", "--cells", "128x128", *{more}]
from mosaicdd.cli.main import main
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
print(len(made))
"""


class House:
    """What there is to count in a checkout."""

    def __init__(self, root: Path):
        self.root = root
        self.files = [
            path for path in sorted((root / "mosaicdd").rglob("*.py")) if path.name != "__init__.py"
        ]
        self.lines = [len(path.read_text().splitlines()) for path in self.files]
        self.functions, self.parameters, self.names = [], [], collections.Counter()
        self.classes = collections.Counter()
        for path in self.files:
            bound = set()  # in functions, each place once, also where one is in another
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    self.classes[node.name] += 1
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    bound |= {
                        (part.lineno, part.col_offset, part.id)
                        for part in ast.walk(node)
                        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
                    }
                    self.functions.append(node.end_lineno - node.lineno + 1)
                    arguments = node.args
                    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                    self.parameters.append(len([a for a in named if a.arg != "self"]))
            self.names.update(name for _, _, name in bound)

    def lines_of(self, folder: str) -> int:
        """Count the lines of a folder."""
        return sum(
            len(p.read_text().splitlines()) for p in (self.root / "mosaicdd" / folder).glob("*.py")
        )

    @staticmethod
    def percentile(values: list[int], share: float) -> int:
        """Return the value below which a share of the values lies."""
        return sorted(values)[int(share * (len(values) - 1))]

    def twins(self) -> int:
        """Count the names that two or more classes have."""
        return sum(1 for times in self.classes.values() if times > 1)

    def pronouns(self) -> int:
        """Count the places that bind a name which does not say what it holds."""
        return sum(self.names[name] for name in ("one", "found", "given", "some"))

    def wired(self, *folders: str, medium: bool = False) -> str:
        """Count the classes in folders that one ``mosaicdd solve`` makes objects of."""
        more = (
            ["--pde", "diffusion", "--field", "a=expr:1+x", "--boundary", "expr:x"]
            if medium
            else []
        )
        with tempfile.TemporaryDirectory() as folder:
            program = _WIRED.format(
                path=f"{folder}/out.h5",
                folders=tuple(f"mosaicdd.{name}" for name in folders),
                more=more,
            )
            return self._python(program).splitlines()[-1]

    def imports(self) -> str:
        """Count the imports of the shortest program, where that runs."""
        try:
            self._python(_PROGRAM)
        except subprocess.CalledProcessError:
            return "about 12"  # by a reader of that tree: there is no library to import
        return str(_PROGRAM.count("import "))

    def _python(self, program: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", program],
            cwd=self.root,
            env={"PYTHONPATH": str(self.root), "PATH": "/usr/bin", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout


def folders(root: Path = ROOT / "mosaicdd") -> str:
    """Draw which folder of the package imports which: whoever needs the fewest, through others too, comes first."""
    names = sorted(path.name for path in root.iterdir() if (path / "__init__.py").exists())
    needs = {name: set() for name in names}
    for name in names:
        for path in (root / name).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                module = getattr(node, "module", None) if isinstance(node, ast.ImportFrom) else None
                needs[name] |= {part for part in (module or "").split(".")[1:2] if part in needs}
        needs[name] -= {name}

    def reached(name: str) -> set[str]:
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


def main(commits: list[str]) -> None:
    """Print and write the table."""
    columns = {}
    with tempfile.TemporaryDirectory() as folder:
        for commit in commits:
            tree = Path(folder) / commit
            add = ["git", "-C", str(ROOT), "worktree", "add", "--detach", str(tree), commit]
            subprocess.run(add, capture_output=True, check=True)
            columns[commit] = House(tree)
        columns["now"] = House(ROOT)
        rows = [
            [name, *(str(count(house)) for house in columns.values())]
            for name, count in _ROWS.items()
        ]
        for commit in commits:
            remove = ["git", "-C", str(ROOT), "worktree", "remove", "--force", f"{folder}/{commit}"]
            subprocess.run(remove, check=True)
    text = table(["", *columns], rows)
    print(text)
    (ROOT / "benchmarks" / "house.md").write_text(
        f"# The package's structure\n\nBy `python scripts/house.py {' '.join(commits)}`.\n\n{text}\n"
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--folders"]:
        print(folders())
    else:
        main(sys.argv[1:])
