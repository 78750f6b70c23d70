"""One local solver put to work on a block: the iteration, and the fill of its result."""

from mosaicdd.lattice.block import Block
from mosaicdd.local_solvers.base import LocalSolver
from mosaicdd.parallel.process_grid import ProcessGrid
from mosaicdd.schwarz.coarse_space import CoarseSpace, TwoLevel
from mosaicdd.schwarz.fill import Fill
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.sweep import AdditiveSweep, PhaseSweep

_FILL_BATCH = 4  # a filled subdomain takes about 8 times the memory of a swept one


class Method:
    """The iteration ``v -> M v`` with one local solver, planned for a block.

    Parameters
    ----------
    settings
        Of which levels, sweep, sync, batches, device and precision count.
    """

    def __init__(
        self, grid: ProcessGrid, block: Block, local_solver: LocalSolver, settings: SolveSettings
    ):
        self.block = block
        self._grid = grid
        self.local_solver = local_solver
        self._settings = settings
        tensors = {"device": settings.device, "dtype": settings.dtype}
        buffers = {"batch_subdomains": settings.batch_subdomains, **tensors}
        plan = local_solver.plan(block.lattice.subdomain.centre_lines, **tensors)
        if settings.sweep == "phases":
            self.iterate = PhaseSweep(grid, block, plan, sync=settings.sync, **buffers)
        else:
            self.iterate = AdditiveSweep(grid, block, plan, **buffers)
        if settings.levels == 2:
            coarse_space = CoarseSpace(grid, block, plan, local_solver.equation, **tensors)
            self.iterate = TwoLevel(self.iterate, coarse_space)

    def plan_fill(self) -> Fill:
        """Plan the fill of the block's region; this allocates it."""
        settings = self._settings
        tensors = {"device": settings.device, "dtype": settings.dtype}
        plan = self.local_solver.plan(self.block.lattice.subdomain.interior, **tensors)
        batch = max(1, settings.batch_subdomains // _FILL_BATCH)
        return Fill(self._grid, self.block, plan, batch_subdomains=batch, **tensors)
