"""The coarse space: bilinear hats on the lattice nodes, which carry values across the domain.

With restriction by injection at the nodes, the coarse operator ``R (I - T) P`` has 9 entries per
row: 1 at the node, and minus the response of the centre of its subdomain to the hats on the 8
lattice nodes of its perimeter. The local solver is the same everywhere, so the stencil is
constant and sine transforms diagonalise it; every rank solves the whole coarse problem.
"""

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.transfer import Batch
from mosaicdd.local_solvers.base import Plan
from mosaicdd.parallel.node_gather import NodeGather
from mosaicdd.parallel.process_grid import ProcessGrid
from mosaicdd.problems.equations import Equation
from mosaicdd.schwarz.sine_transform import sine_transform
from mosaicdd.schwarz.sweep import AdditiveSweep

# The lattice nodes of a perimeter, counter-clockwise from the lower-left corner, seen from the
# centre of the subdomain.
_NEIGHBOURS = ((-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1))


class CoarseSpace:
    """The coarse correction ``c = A_c^-1 R (T v - v)`` and its effect on the interface.

    Parameters
    ----------
    plan
        The local solver, planned for the centre lines.
    equation
        That it solves.
    """

    def __init__(
        self,
        grid: ProcessGrid,
        block: Block,
        plan: Plan,
        equation: Equation,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self._block = block
        self._responses = self._respond(plan, equation, device, dtype)  # (8, 2 (m - 1))
        counts = block.lattice.subdomains
        self._gather = NodeGather(grid, counts, device=device)
        self._symbol = self._transform_stencil(counts).to(device)
        padded = [n + 2 for n in counts]
        self._correction = torch.zeros(padded, device=device, dtype=torch.float64)
        region = tuple(slice(a - 1, b + 1) for a, b in zip(block.start, block.stop, strict=True))
        self._region = region
        self._local = torch.zeros([n + 2 for n in block.subdomains], device=device, dtype=dtype)

    def _respond(self, plan: Plan, equation: Equation, device, dtype) -> torch.Tensor:
        """Return the centre lines ``(8, 2 (m - 1))`` for a hat on each lattice node around.

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
        nodes, inside = nodes[:, kept], inside[:, kept]
        missing = inside.T - nodes.T @ responses.double().cpu().numpy()
        return responses + torch.as_tensor(np.linalg.pinv(nodes.T) @ missing).to(responses)

    def _transform_stencil(self, counts: tuple[int, int]) -> torch.Tensor:
        """Return the eigenvalues of the coarse operator, its stencil made symmetric."""
        centre = self._responses[:, self._block.lattice.spacing - 1].double().cpu()
        corners, up, across = centre[0::2].mean(), centre[[1, 5]].mean(), centre[[3, 7]].mean()
        y, x = (
            2 * torch.cos(torch.pi * torch.arange(1, n + 1, dtype=torch.float64) / (n + 1))
            for n in counts
        )
        return 1.0 - up * y[:, None] - across * x - corners * y[:, None] * x

    def correct(self, residual: torch.Tensor) -> None:
        """Solve for the correction to a residual at this rank's owned nodes."""
        r = self._gather(residual)
        n = [2 * (size + 1) for size in r.shape]
        transformed = sine_transform(sine_transform(r, 0), 1) / self._symbol
        solution = sine_transform(sine_transform(transformed, 0), 1) / (n[0] * n[1])
        self._correction[1:-1, 1:-1] = solution
        self._local.copy_(self._correction[self._region])

    def sweep(self, batch: Batch, out: torch.Tensor) -> None:
        """Write ``T P c`` on the centre lines of a batch to ``out``, ``(B, 2 (m - 1))``."""
        rows, columns = batch
        around = [
            self._local[rows.start + 1 + dy : rows.stop + 1 + dy][
                :, columns.start + 1 + dx : columns.stop + 1 + dx
            ]
            for dy, dx in _NEIGHBOURS
        ]
        torch.mm(torch.stack(around, dim=-1).view(-1, 8), self._responses, out=out)


class TwoLevel:
    """One two-level iteration: sweep, coarse correction, and the correction swept.

    ``r = T v - v``, ``c = A_c^-1 R r``, ``v <- T v + T P c``; for a linear local solver the last
    is ``T (v + P c)``. It stands still only where ``T v = v``, linear or not: then ``R r = -R T P
    c``, which with ``(I - R T P) c = R r`` leaves ``c = 0``. One call needs one halo exchange and
    one all-gather of the lattice nodes.
    """

    def __init__(self, sweep: AdditiveSweep, coarse_space: CoarseSpace):
        self._sweep = sweep
        self._coarse_space = coarse_space

    def __call__(self, v: Interface, out: Interface) -> torch.Tensor:
        """Write the iterate after ``v`` to ``out``, whose edge values are kept; return ``R r``."""
        self._sweep.contribute(v, out)
        residual = out.nodes() - v.nodes()
        self._coarse_space.correct(residual)
        for batch in self._sweep.batches:
            values = self._sweep.centre_lines(batch)
            self._coarse_space.sweep(batch, values)
            self._sweep.blend(values, batch, out)
        self._sweep.exchange.add(out.lines)
        return residual
