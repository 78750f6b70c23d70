"""The coarse space: bilinear hats on the lattice nodes, which carry values across the domain.

With restriction by injection at the nodes, the coarse operator ``R (I - T) P`` has 9 entries per
row: 1 at the node, and minus the response of the centre of its subdomain to the hats on the 8
lattice nodes of its perimeter. The local solver is the same everywhere, so the stencil is constant.
"""

import math
from collections.abc import Callable

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.transfer import Batch
from mosaicdd.local_solvers.base import Plan
from mosaicdd.parallel.partition import coarse_is_replicated
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.equations import Equation
from mosaicdd.schwarz.coarse_solve import DistributedSolve, ReplicatedSolve
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopping import count_of_sums
from mosaicdd.schwarz.stopwatch import Stopwatch

# The lattice nodes of a perimeter, counter-clockwise from the lower-left corner, seen from the
# centre of the subdomain.
_NEIGHBOURS = ((-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1))


class CoarseSpace:
    """The coarse correction ``c = A_c^-1 R (T v - v)`` and its effect on the interface.

    Parameters
    ----------
    plan
        The local solver, planned for the centre lines, with the weights of `Lattice.hat`.
    equation
        That it solves.
    """

    def __init__(
        self,
        ranks: Ranks,
        block: Block,
        plan: Plan,
        equation: Equation,
        settings: SolveSettings,
        problems: int,
        clock: Stopwatch,
    ):
        kind = settings.tensors
        self._block = block
        self._responses = self._respond(plan, equation, **kind)  # (8, 2 (m - 1))
        # The correction at the lattice nodes of the region; zero on the edge of the domain.
        shape = [n + 2 for n in block.region_subdomains]
        correction = torch.zeros(problems, *shape, **kind)
        ends = list(zip(block.first, block.last, block.lattice.subdomains, strict=True))
        here = [slice(max(a, 1) - a, min(b, n) + 1 - a) for a, b, n in ends]
        inside = tuple(slice(max(a, 1) - 1, min(b, n)) for a, b, n in ends)
        self._correction, self._inner = correction, correction[..., *here]
        shared = {"problems": problems, "clock": clock}
        if not coarse_is_replicated(math.prod(block.lattice.subdomains), ranks.size):
            self._solve = DistributedSolve(ranks, block, self._symbol(), **shared)
        else:
            sums = {"sums": count_of_sums(problems), "device": kind["device"]}
            self._solve = ReplicatedSolve(ranks, block, inside, self._symbol(), **sums, **shared)
        largest = problems * min(settings.batch_subdomains, math.prod(block.region_subdomains))
        self._around = torch.empty(largest, 8, **kind)  # the correction at the nodes around
        self._moving = clock.part("gather_scatter")
        self._solving = clock.part("coarse")

    def _respond(self, plan: Plan, equation: Equation, device, dtype) -> torch.Tensor:
        """Return the weighted centre lines ``(8, 2 (m - 1))`` for a hat on each node around.

        They are corrected to reproduce the exact solutions that the hats do. For a linear local
        solver under the lifting this changes nothing; one that is not linear gives responses that
        do not add up, and the coarse operator would be wrong just for the smoothest functions.
        """
        subdomain, s = self._block.lattice.subdomain, self._block.lattice.spacing
        away = np.abs(np.arange(8 * s)[None] - s * np.arange(8)[:, None])
        hats = np.maximum(0.0, 1.0 - np.minimum(away, 8 * s - away) / s)
        responses = torch.empty(8, 2 * (2 * s - 1), device=device, dtype=dtype)
        plan(torch.as_tensor(hats).to(device=device, dtype=dtype), responses)

        around, inside = (
            equation.exact_solutions(2, *(points.T / s - 1.0))
            for points in (subdomain.perimeter, subdomain.centre_lines)
        )
        nodes = around[::s]  # (8, J)
        kept = np.abs(hats.T @ nodes - around).max(axis=0) < 1e-12
        weights = np.tile(self._block.lattice.hat, 2)[:, None]
        nodes, inside = nodes[:, kept], weights * inside[:, kept]
        missing = inside.T - nodes.T @ responses.double().cpu().numpy()
        return responses + torch.as_tensor(np.linalg.pinv(nodes.T) @ missing).to(responses)

    def _symbol(self) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return the eigenvalues of the coarse operator, its stencil made symmetric."""
        centre = self._responses[:, self._block.lattice.spacing - 1].double().cpu().numpy()
        corners, up, across = centre[0::2].mean(), centre[[1, 5]].mean(), centre[[3, 7]].mean()
        ny, nx = self._block.lattice.cells

        def symbol(ky: np.ndarray, kx: np.ndarray) -> np.ndarray:
            y, x = 2 * np.cos(np.pi * ky / ny), 2 * np.cos(np.pi * kx / nx)
            return 1.0 - up * y - across * x - corners * y * x

        return symbol

    def correct(self, residual: torch.Tensor, sums: np.ndarray) -> np.ndarray:
        """Solve for the correction to a residual at this rank's owned nodes.

        Returns
        -------
        ndarray
            ``sums``, added up over the ranks by the way.
        """
        return self._solve(residual, sums, self._inner)

    def sweep(self, batch: Batch, out: torch.Tensor) -> None:
        """Write ``T P c`` on the centre lines of a batch, weighted, to ``out``, ``(B, 2 (m - 1))``."""
        rows, columns = batch
        with self._moving:
            around = [
                self._correction[
                    :,
                    rows.start + 1 + dy : rows.stop + 1 + dy,
                    columns.start + 1 + dx : columns.stop + 1 + dx,
                ]
                for dy, dx in _NEIGHBOURS
            ]
            shape = around[0].shape
            stacked = self._around[: len(out)]
            torch.stack(around, dim=-1, out=stacked.view(*shape, 8))
        with self._solving:
            torch.mm(stacked, self._responses, out=out)
