"""What benchmarks share: tables, seconds, memory, and processes of their own on one rank or several."""

import csv
import functools
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parent.parent
_SMALL = "MOSAICDD_SMALL_BENCHMARKS"  # set by `run.py --small`: a folder for what is written
BENCHMARKS = Path(os.environ.get(_SMALL) or ROOT / "benchmarks")
PAPER = BENCHMARKS / "paper"  # tables of `reproduce.sh`
RUN = ROOT / "benchmarks" / "run.py"


def write_elsewhere() -> None:
    """Have this process, begun anew, and those that it starts write to a folder for temporary files."""
    if _SMALL not in os.environ:
        os.environ[_SMALL] = tempfile.mkdtemp(prefix="benchmarks-")
        os.execv(sys.executable, [sys.executable, *sys.argv])


# Tables


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format a Markdown table with columns of equal width."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |" for r in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def machine() -> str:
    """Describe the machine and the libraries in one line."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    if torch.cuda.is_available():
        model += f", {torch.cuda.get_device_name()}"
    return (
        f"{model}, {torch.get_num_threads()} thread per rank, Python {platform.python_version()}, "
        f"torch {torch.__version__}, numpy {np.__version__}"
    )


def hardware() -> str:
    """Return the date, and what `machine` says."""
    return f"{datetime.now(UTC).date().isoformat()}, {machine()}"


def publish(name: str, title: str, *parts: str) -> None:
    """Print a result with the command that it is from, and write it to ``benchmarks/NAME.md``."""
    command = " ".join(["python benchmarks/run.py", *sys.argv[1:]])
    note = f"By `{command}`: the head of its file says what is measured."
    content = "\n\n".join([f"# {title}", hardware(), note, *parts]) + "\n"
    print(content)
    BENCHMARKS.mkdir(exist_ok=True)
    (BENCHMARKS / f"{name}.md").write_text(content)


def write_csv(name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table to ``benchmarks/paper/NAME.csv``."""
    PAPER.mkdir(parents=True, exist_ok=True)
    with open(PAPER / f"{name}.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([header, *rows])


def read_csv(name: str) -> list[dict[str, str]]:
    """Read the rows of ``benchmarks/paper/NAME.csv``."""
    with open(PAPER / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


class KeptRows(dict[tuple[str, ...], dict[str, str]]):
    """The rows of ``benchmarks/NAME.csv`` by what their first columns hold; those measured anew replace the old ones.

    Parameters
    ----------
    keys, columns
        Names of the first columns, and of the others.
    """

    def __init__(self, name: str, keys: Sequence[str], columns: Sequence[str]):
        self._path, self._keys, self._columns = BENCHMARKS / f"{name}.csv", keys, columns
        if self._path.exists():
            with open(self._path, newline="") as file:
                super().__init__(
                    (tuple(row.pop(key) for key in keys), row) for row in csv.DictReader(file)
                )

    def write(self) -> None:
        """Write all of them."""
        self._path.parent.mkdir(exist_ok=True)
        with open(self._path, "w", newline="") as file:
            writer = csv.DictWriter(file, (*self._keys, *self._columns), lineterminator="\n")
            writer.writeheader()
            for key, row in self.items():
                writer.writerow(dict(zip(self._keys, key, strict=True)) | row)


# Seconds


def timed(call: Callable[..., Any], *arguments: Any, clock: Callable = time.perf_counter) -> tuple:
    """Return what a call returns, and its seconds."""
    start = clock()
    result = call(*arguments)
    return result, clock() - start


processor_timed = functools.partial(timed, clock=time.process_time)
"""The same, in seconds of the processor, so that other work on the machine matters little."""


def in_turns(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list]:
    """Return what calls return that take turns, the order changing; the first round is left out."""
    results: dict[str, list] = {name: [] for name in calls}
    for number in range(1 + rounds):
        for name in list(calls)[:: 1 if number % 2 else -1]:
            results[name].append(calls[name]())
    return {name: several[1:] for name, several in results.items()}


def medians(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median seconds of calls that take turns."""
    spent = in_turns({n: lambda call=call: timed(call)[1] for n, call in calls.items()}, rounds)
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


def seconds_per_call(function: Callable[[], object], seconds: float = 1.5) -> float:
    """Return the least of several times; on a processor its own time, that of others left out."""
    clock = time.perf_counter if torch.cuda.is_available() else time.thread_time
    function()
    best, start, calls = float("inf"), clock(), 0
    while clock() - start < seconds or calls < 5:
        before = clock()
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        best = min(best, clock() - before)
        calls += 1
    return best


# Processes


def on_ranks(ranks: int, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """Run Python with some arguments, under mpiexec on more than one rank; return what it prints.

    A rank has one thread. `subprocess.CalledProcessError` if it fails.
    """
    command = [sys.executable, *arguments]
    if ranks > 1:
        beside = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        command = [str(beside), "-n", str(ranks), *command]
    environment = (environment or dict(os.environ)) | {"OMP_NUM_THREADS": "1"}
    job = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return job.stdout


def in_process(
    function: Callable[..., Any],
    *arguments: Any,
    ranks: int = 1,
    environment: dict[str, str] | None = None,
) -> Any:
    """Return what a function of a benchmark returns on the first rank of a job of its own, through JSON."""
    file = Path(sys.modules[function.__module__].__file__ or "").stem
    call = json.dumps([file, function.__name__, arguments])
    printed = on_ranks(ranks, str(RUN), "--call", call, environment=environment)
    return json.loads(printed.splitlines()[-1])


def mosaicdd(ranks: int, *arguments: str) -> dict:
    """Run a command of the package with ``--json``; return what it prints."""
    return json.loads(on_ranks(ranks, "-m", "mosaicdd.cli.main", *arguments, "--json"))


# Memory that is there before something is measured. A virtual machine that lends its free memory to others gets it
# back page by page, for up to 2.5 s per GB, and gives it away again within seconds. The pages of a pool stay: with
# ``sysctl vm.nr_hugepages=3000`` there are 6 GB of them.

_MEMINFO = Path("/proc/meminfo")
_POOLED = "glibc.malloc.hugetlb=2"  # all that is allocated comes from the pool


def pooled(size: float) -> dict[str, str] | None:
    """Return the environment in which a process has its memory from the pool; None where that has fewer bytes."""
    pages, kilobytes = _pool()
    if pages * kilobytes * 1024 < size:
        return None
    return os.environ | {"GLIBC_TUNABLES": _POOLED}


def page() -> str:
    """Return the size of the pages that this process has its memory in, as ``4 kB``."""
    small = resource.getpagesize() // 1024
    kilobytes = _pool()[1] if os.environ.get("GLIBC_TUNABLES") == _POOLED else small
    return f"{kilobytes // 1024} MB" if kilobytes >= 1024 else f"{kilobytes} kB"


def ready(size: float) -> None:
    """Touch so many bytes and give them back, by a process of its own, to the pool where they are from there."""
    subprocess.run([sys.executable, "-c", f"b'1' * {int(size)}"], check=True)


def resident_bytes() -> int:
    """Return the memory that this process takes now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak_bytes() -> int:
    """Return the most memory that this process took."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _pool() -> tuple[int, int]:
    """Return how many pages of the pool are free, and the size of one in kB."""
    meminfo = _MEMINFO.read_text() if _MEMINFO.exists() else ""
    pages = dict(re.findall(r"^(HugePages_Free|Hugepagesize):\s*(\d+)", meminfo, re.MULTILINE))
    return int(pages.get("HugePages_Free", 0)), int(pages.get("Hugepagesize", 0))
