"""The engine for constant coefficients on rectangles and boxes: one solve by transforms, and the true residual."""

from typing import Any

from mosaicdd.discretisation.system import SeparableSystem
from mosaicdd.solvers.multigrid.multigrid_engine import MultigridEngine
from mosaicdd.solvers.transforms.sine_system import SineSystem


class SineEngine(MultigridEngine):
    """Solves as media are, but by transforms in the place of iterations; on GPUs by these."""

    def _planned(self, *, transposed: bool) -> Any:
        """Return what is planned: `SineSystem`, which is its own transpose."""
        solver = self._solver
        if not isinstance(solver, SeparableSystem) or self._tensors["device"].type != "cpu":
            return super()._planned(transposed=transposed)
        self.acceleration, self.begins = "sines", False
        key = (SineSystem, self.partition)
        if key not in solver.planned:
            solver.planned[key] = SineSystem(self.partition, solver, self.clock)
        return solver.planned[key]
