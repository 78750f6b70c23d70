"""What all tests share: small problems, the command line on all ranks of a test, data to learn from."""

import gc
import json
import os
import shlex
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import mosaicdd as m
import mosaicdd.cli.main as command_line
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.partition import Partition
from mosaicdd.networks.faces import FacesNetwork, FacesSettings
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.parallel.launcher import threads_per_rank
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.block import Lattice
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.solvers.base_engine import FieldRequest
from mosaicdd.solvers.references import solve_by_sine_transform
from mosaicdd.solvers.settings import SolveSettings

pytest_plugins = ("on_ranks", "solver_fixtures")

torch.set_num_threads(threads_per_rank())


def pytest_report_header():
    """Tell the processor that is pretended (`processors`), and what torch takes."""
    pretended = os.environ.get("PRETENDED_PROCESSOR", "this")
    capability = torch.backends.cpu.get_cpu_capability()
    return f"processor: {pretended} (torch: {capability}, threads: {torch.get_num_threads()})"


def pytest_collection_finish(session):
    """Let loops be compiled, which a command would tell of, and the collector of garbage pass over all that was imported.

    A look at that takes a second.
    """
    if session.items:
        a = np.exp(np.random.default_rng(0).random((33, 33)))
        m.solve(m.Problem((32, 32), "diffusion", {"a": a, "f": 1.0}))
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_disks():
    """Let files be as they are after a sync, without one: a busy disk takes seconds for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def make_lattice():
    """Return a factory of lattices with ``(K_y, K_x)`` lattice cells and subdomains of ``m``."""

    def make(cells, m=8, size=0.5):
        subdomain = Subdomain(m, size)
        shape = tuple(count * m // 2 for count in cells)
        return Lattice(Grid(shape, subdomain.spacing), subdomain)

    return make


@pytest.fixture
def make_solver(make_ranks):
    """Return a factory of solvers on a lattice: exact local solver, this rank alone, rtol 1e-10."""

    def make(lattice, *, ranks=None, local_solver=None, window=None, **settings):
        solver = local_solver or ExactSolver(LAPLACE.at(), lattice.subdomain)
        boxes = solver.boxes(lattice.grid, (False,) * len(lattice.cells))
        return Engine(
            Partition(boxes, ranks or make_ranks(alone=True)),
            solver,
            SolveSettings(**{"rtol": 1e-10} | settings),
            FieldRequest(window=window),
        )

    return make


@pytest.fixture
def problem():
    """Return a function: rough boundary data on a lattice and the discrete solution."""

    def make(lattice, seed=0):
        boundary = Boundary.of_gaussian_process(lattice.grid, seed=seed, noise=0.05)
        return boundary, solve_by_sine_transform(Problem(boundary.shape, LAPLACE, sides=boundary))

    return make


@pytest.fixture(scope="session")
def faces_network():
    """Return a factory of networks of faces, by the least squares: waves fade as solutions do, but for ``off`` of it."""

    def make(subdomain, off=0.0, c=0.0):
        torch.manual_seed(0)
        network = FacesNetwork(len(subdomain.perimeter), FacesSettings(width=32)).double()
        m, along = subdomain.cells, subdomain.axes - 1
        numbers = np.arange(1, m)
        kinds = np.unique(np.sort(np.indices((m - 1,) * along).reshape(along, -1), axis=0), axis=1)
        reaction = 0.5 * c * subdomain.spacing**2
        rate = np.arccosh(1 + reaction + (1 - np.cos(np.pi * numbers[kinds] / m)).sum(axis=0))
        left = np.sinh(rate * (m - numbers[:, None])) / np.sinh(rate * m)
        left *= 1 + off * np.random.default_rng(0).standard_normal(left.shape)
        with torch.no_grad():
            trunk = network.trunk(torch.as_tensor(2.0 * numbers / m - 1)[:, None])
            network.branch.copy_(torch.linalg.lstsq(trunk, torch.as_tensor(left)).solution.T)
        return network

    return make


@pytest.fixture
def common_path(comm, tmp_path):
    """Return a temporary folder that all ranks use."""
    return comm.bcast(tmp_path)


@pytest.fixture
def lost(comm, common_path):
    """Return a folder, and a function that removes it on the root; all ranks call that."""
    folder = common_path / "lost"
    if comm.rank == 0:
        folder.mkdir()
    comm.Barrier()

    def lose(*_):
        if comm.rank == 0 and folder.exists():
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        comm.Barrier()

    return folder, lose


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit codes and output of all ranks.

    Parameters
    ----------
    codes
        One per rank.
    out, err
        What all ranks printed, rank by rank.
    """

    codes: list[int]
    out: str
    err: str

    @property
    def code(self) -> int:
        """The exit code of all ranks, which must agree."""
        assert len(set(self.codes)) == 1, f"exit codes {self.codes}:\n{self.err}"
        return self.codes[0]


@pytest.fixture
def mosaicdd(comm, monkeypatch, capfd):
    """Return a function that runs ``mosaicdd ARGUMENTS`` on all ranks of the test; a first one with blanks is split."""
    # The job must survive a fault of the program to report it.
    monkeypatch.setattr(command_line, "abort_all_ranks", lambda: None)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments):
        first, *rest = arguments or ("",)
        words = shlex.split(str(first)) if " " in str(first) or not first else [first]
        monkeypatch.setattr(sys, "argv", ["mosaicdd", *map(str, (*words, *rest))])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        out, err = capfd.readouterr()
        return Ended(
            comm.allgather(ended.value.code),
            "".join(comm.allgather(out)),
            "".join(comm.allgather(err)),
        )

    return run


@pytest.fixture
def strict_json():
    """Return a function that parses exactly one JSON object, without Python's NaN and Infinity."""

    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    def parse(text):
        assert text.count("\n") == 1
        return json.loads(text, parse_constant=refuse)

    return parse


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Return a file of 300 solutions of Laplace's equation in squares of 8 cells, for this rank."""
    from drawn_data import generate_dataset

    from mosaicdd.training.settings import GenerationSettings

    path = tmp_path_factory.mktemp("laplace") / "data.h5"
    squares = {"subdomain": Subdomain(cells=8, size=0.125), "method": "direct"}
    generate_dataset(GenerationSettings(**squares, samples=300, windows=50)).write(path)
    return path
