"""A network that hands perimeters outside of its training range to the exact local solver."""

import numpy as np
import torch

from mosaicdd.local_solvers.base import OutsideRange, Plan
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.local_solvers.network_solver import NetworkSolver


class GuardedSolver:
    """Solve by a network where it was trained, exactly elsewhere.

    Which of the two depends on the perimeter values, so the map is not linear.

    Raises
    ------
    ValueError
        If the model's card does not state a range.
    """

    linear = False

    def __init__(self, network_solver: NetworkSolver):
        if network_solver.training_range is None:
            raise ValueError(
                f"the card of {network_solver.name} states no range of boundary data; train it anew"
            )
        self.name = network_solver.name
        self.operator = network_solver.operator
        self.subdomain = network_solver.subdomain
        self.source = network_solver.source
        self.training_range = network_solver.training_range
        self._network_solver = network_solver
        self._exact = ExactSolver(self.operator, self.subdomain)

    def plan(
        self,
        points: np.ndarray,
        *,
        device: torch.device,
        dtype: torch.dtype,
        weights: np.ndarray | None = None,
    ) -> Plan:
        """Prepare both solves for grid nodes ``points``, ``(Q, 2)`` integers in cells."""
        kind = {"device": device, "dtype": dtype, "weights": weights}
        network = self._network_solver.plan(points, **kind)
        exact = self._exact.plan(points, **kind)
        outside_of = self.outside_range(device=device, dtype=dtype)

        def plan(g: torch.Tensor, out: torch.Tensor) -> None:
            network(g, out)
            outside = outside_of(g)
            if outside.any():
                corrected = torch.empty(
                    int(outside.sum()), out.shape[1], device=device, dtype=dtype
                )
                exact(g[outside], corrected)
                out[outside] = corrected

        return plan

    def outside_range(self, *, device: torch.device, dtype: torch.dtype) -> OutsideRange | None:
        """Return what tells perimeters outside of the network's training range."""
        return self._network_solver.outside_range(device=device, dtype=dtype)
