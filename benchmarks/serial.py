"""One-rank solves for the benchmarks, by the package's own parts."""

from mosaicdd.grid.grid import Grid
from mosaicdd.grid.partition import Partition
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.schwarz.block import Lattice
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.local_solvers.bound import LocalSolver
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.local_solvers.loading import find_local_solver
from mosaicdd.solvers.base_engine import FieldRequest
from mosaicdd.solvers.settings import SolveSettings

BATCH = {"cpu": 4096, "cuda": 65536}  # subdomains per call, as ``mosaicdd solve`` chooses it


def local_solver(name: str) -> LocalSolver:
    """Return the exact local solver or a shipped model."""
    return (
        ExactSolver(LAPLACE.at(), Subdomain())
        if name == "exact"
        else find_local_solver(name).as_trained()
    )


def schwarz_solver(
    solver: LocalSolver, cells: tuple[int, int], settings: SolveSettings, *, problems: int = 1
) -> Engine:
    """Plan a solve of so many problems at once, on ``(ny, nx)`` cells, on this process alone."""
    lattice = Lattice(Grid(cells, solver.subdomain.spacing), solver.subdomain)
    ranks = Ranks.alone()
    return Engine(
        Partition(solver.boxes(lattice.grid, (False,) * len(lattice.cells)), ranks),
        solver,
        settings,
        FieldRequest(problems),
    )
