"""Tests on several ranks: which run on how many, a watchdog, and what the ranks of a test share.

The same files run as ``pytest`` and as ``mpiexec -n N pytest``. A test marked ``ranks(1, 4)`` runs
on those numbers of ranks, one without the marker on one rank only. ``--daily`` leaves out all sizes of a
marker but one (`daily`), and most combinations of several parameters' values (`among_few`).
``--nightly`` has them all run by the suite, and the tests marked ``nightly``, which show what others show at a
smaller size or for another case.
On several ranks all wait for each other after each test; if one has failed and others hang in it,
the job is ended. Rank 0 reports; the others print their failures to stderr.
"""

import faulthandler
import os
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from mpi4py import MPI

from mosaicdd.parallel.ranks import Ranks

_TESTS = Path(__file__).parents[1]
_WATCHDOG_SECONDS = 120
_GRACE_SECONDS = 10  # for the ranks that have not failed to come out of a test


def pytest_addoption(parser):
    all_sizes = (
        "each test on all sizes of its marker (tests/test_mpi_suite.py), and those marked nightly"
    )
    parser.addoption("--nightly", action="store_true", help=all_sizes)
    few = "each test on one number of ranks, for few cases: see `daily`, `among_few`"
    parser.addoption("--daily", action="store_true", help=few)


# Where four ranks show more than two, as they cut both axes: messages, the field of each engine.
_CUT = (
    *("grid/", "parallel/", "gradients/test_domains.py", "problems/test_wells.py"),
    *("solvers/multigrid/test_multigrid_engine.py", "schwarz/test_engine.py"),
    *("schwarz/test_many_ranks.py", "schwarz/test_periodic.py", "schwarz/test_ranks.py"),
    *("schwarz/test_shapes.py", "schwarz/test_space.py", "time/test_march.py"),
)
# Where a case takes milliseconds, all combinations of parameters run each day.
_QUICK = (*("grid/", "schwarz/local_solvers/", "parallel/", "planning/", "storage/"),)
# Whose tests take up to a minute: first, and no process waits at the end for another that is in one.
_LONG = ("test_types.py", "docs/", "cli/test_without_mpi.py", "faults/")


def file_of(item):
    """Return the place of a test's file among the tests."""
    return item.path.relative_to(_TESTS).as_posix()


def daily(sizes, file, place=0):
    """Return the size of a marker that shows most in a file of tests: two, or four where they show more.

    So for a test's first case; those at later places run on one rank, which costs least.
    """
    if place > 0 and 1 in sizes:
        return {1}
    several = sorted(size for size in sizes if 1 < size <= 6)
    first = (4, 2) if file.startswith(_CUT) else (2, 4)
    return set([*(size for size in first if size in several), *several, *sizes][:1])


def every(sizes, file, place=0):
    """Return all sizes of a marker, whatever the file and the case."""
    return set(sizes)


def among_few(cases):
    """Return of the cases of a test, all combinations of several parameters' values, a Latin square.

    Each value of two parameters is in one, and each pair of values of three.
    """
    marks = [mark.args[0] for mark in cases[0].iter_markers("parametrize")]
    names = [mark.split(",") if isinstance(mark, str) else mark for mark in marks]

    def value(case, axis):
        return tuple(id(case.callspec.params[name.strip()]) for name in axis)

    values = [list(dict.fromkeys(value(case, axis) for case in cases)) for axis in names]
    axes = [(axis, of) for axis, of in zip(names, values, strict=True) if len(of) > 1]
    if len(axes) < 2:
        return cases
    fewest = min(len(of) for _, of in axes)
    return [
        case
        for case in cases
        if sum(of.index(value(case, axis)) for axis, of in axes) % fewest == 0
    ]


@pytest.hookimpl(trylast=True)  # after the reporter has been made
def pytest_configure(config):
    config.addinivalue_line(
        "markers", "limit(seconds): the watchdog's, instead of 120, where each rank has a core"
    )
    config.addinivalue_line("markers", "nightly: run with --nightly only")
    config.pluginmanager.register(_Ranks(config, MPI.COMM_WORLD))


class _Ranks:
    """Selects the tests of this number of ranks, watches them, and keeps the ranks together."""

    def __init__(self, config, world):
        self.world = world.Dup()
        # What pytest has not captured: it does not capture at this point.
        self.stderr = os.fdopen(os.dup(2), "w")
        self.failed = False
        self.sizes = daily if config.getoption("daily") else every
        self.nightly = config.getoption("nightly")
        if world.rank > 0:
            config.pluginmanager.unregister(name="terminalreporter")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        tests = {}
        for item in items:
            if self.nightly or not item.get_closest_marker("nightly"):
                tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
        chosen = set()
        for cases in tests.values():
            few = self.sizes is daily and not file_of(cases[0]).startswith(_QUICK)
            for place, case in enumerate(among_few(cases) if few else cases):
                if self.belongs(case, place):
                    chosen.add(id(case))
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
        items[:] = [item for item in items if id(item) in chosen]
        if self.world.size == 1:
            items.sort(key=lambda item: not file_of(item).startswith(_LONG))

    def belongs(self, case, place):
        """Say whether the case of a test at some place is one for this number of ranks."""
        marker = case.get_closest_marker("ranks")
        return self.world.size in self.sizes(marker.args if marker else (1,), file_of(case), place)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        marker = item.get_closest_marker("limit")
        limit = marker.args[0] if marker else _WATCHDOG_SECONDS
        limit *= max(1, self.world.size // len(os.sched_getaffinity(0)))  # ranks that share a core
        faulthandler.dump_traceback_later(limit, exit=True, file=self.stderr)
        self.failed = False
        try:
            result = yield
            self.meet()
            return result
        finally:
            faulthandler.cancel_dump_traceback_later()

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed = True
            if self.world.rank > 0:
                print(f"rank {self.world.rank}: {report.nodeid}", file=self.stderr)
                print(report.longreprtext, file=self.stderr, flush=True)

    def meet(self):
        """Wait for the other ranks; end the job if this one has failed and they do not come."""
        arrived, start = self.world.Ibarrier(), time.monotonic()
        while not arrived.Test():
            time.sleep(0.001)
            if self.failed and time.monotonic() - start > _GRACE_SECONDS:
                self.stderr.write(f"rank {self.world.rank} failed, others wait: end of the job\n")
                self.stderr.flush()
                self.world.Abort(1)


@pytest.fixture(scope="session")
def sizes_that_run(pytestconfig):
    """Return a function of a marker's sizes and the file: those that the suite of several ranks runs."""
    return every if pytestconfig.getoption("nightly") else daily


@pytest.fixture
def comm():
    """Return the communicator over all ranks."""
    return MPI.COMM_WORLD


@pytest.fixture
def by_one(comm):
    """Return a function: ``by_one(function, ...)`` is called by rank 0 alone, and all get what it returns.

    On many ranks the same on each would take as many times as long.
    """

    def call(function, *arguments, **options):
        given, failure = None, None
        if comm.rank == 0:
            try:
                given = function(*arguments, **options)
            except Exception as error:  # noqa: BLE001 - raised again below, on every rank
                failure = error
        arrived = comm.Ibarrier()
        while not arrived.Test():
            time.sleep(0.001)  # MPI would poll
        if failure := comm.bcast(failure):
            raise failure
        return comm.bcast(given)

    return call


def _known(solved):
    """Return what is known of a solve or a march, which itself does not travel."""
    told = ("field", "iterations", "error_estimate", "status", "steps", "report")
    many = {"fields": list(solved)} if hasattr(solved, "times") else {"results": solved.results}
    return SimpleNamespace(**{name: getattr(solved, name, None) for name in told}, **many)


@pytest.fixture
def known_by_one(by_one):
    """Return a function: as `by_one`, of a solve or a march."""

    def known(function, *arguments, **options):
        return _known(function(*arguments, **options))

    return lambda *arguments, **options: by_one(known, *arguments, **options)


@pytest.fixture
def alone_and_together(known_by_one, comm):
    """Return a function that returns a solve or a march by one rank, as far as it is known, and by all."""

    def both(function, *arguments, **options):
        together = function(*arguments, ranks=comm, **options)
        if comm.size == 1:  # a second time would be the same once more
            return _known(together), together
        return known_by_one(function, *arguments, **options), together

    return both


@pytest.fixture
def make_ranks(comm):
    """Return a factory of `Ranks` for one test: all of them with any dims, or this one alone."""
    with Ranks.of(comm) as everyone:
        yield lambda dims=None, *, alone=False: Ranks.alone() if alone else Ranks.of(everyone, dims)


@pytest.fixture
def ranks(make_ranks):
    """Return all ranks."""
    return make_ranks()


@pytest.fixture
def all_dims(comm):
    """Return all dims of this number of ranks, (y, x)."""
    return [(y, comm.size // y) for y in range(1, comm.size + 1) if comm.size % y == 0]


@pytest.fixture(scope="session")
def mpiexec():
    """Return the launcher beside this Python, or the first one on the path."""
    beside = Path(sys.executable).parent
    found = shutil.which("mpiexec", path=f"{beside}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.fail("no mpiexec: pip install 'mosaicdd[mpi]', or load your cluster's MPI module")
    # MPICH polls 1000 times before it lets another process run: with more ranks than cores, 100 is a
    # quarter faster.
    os.environ.setdefault("MPIR_CVAR_POLLS_BEFORE_YIELD", "100")
    return found
