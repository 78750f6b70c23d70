"""The coarse space: hats on the coarse nodes, which carry values across the domain.

A hat is 1 at its node and falls linearly along the lattice lines to 0 at the next coarse nodes. With
restriction by injection at the nodes, row ``i`` of the coarse operator ``A_c = R (I - T) P`` is 1 at the
node and minus the responses there of the one or two subdomains on whose centre lines it lies to the
hats on their perimeters. So it is assembled from the responses of the local solver, for any linear
equation (`coarse_solve`).
"""

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.coarsening import Coarsening
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.transfer import Batch, Transfer
from mosaicdd.local_solvers.lifting import exact_solutions
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.schwarz.coarse import coarse_solve
from mosaicdd.schwarz.sweep import Task


class CoarseSpace:
    """The coarse correction ``c = A_c^-1 R (T v - v)`` and its effect on the interface.

    Parameters
    ----------
    operator
        Whose equation is solved.
    responses
        Centre lines for a hat on each coarse node around a subdomain, weighted by `Lattice.hat`, ``(8 q, 2 (m - 1))``.
    points
        Coarse nodes per lattice cell along a line, ``q``.
    """

    def __init__(
        self, task: Task, operator: EllipticOperator, responses: torch.Tensor, points: int
    ):
        tensors, problems = task.tensors, task.problems
        self._coarsening = coarsening = Coarsening(task.block.lattice, points)
        self._responses = responses = hat_responses(task.block, operator, responses, points)
        self._solve = coarse_solve.coarse_solver(task, coarsening, responses, operator)
        coarse = coarsening.block(task.block)
        self._correction = Interface(coarse, problems=problems, **tensors)
        self._transfer = Transfer(coarse, **tensors)
        touched = len(coarsening.touched(task.block))
        self._residual = torch.empty(problems, touched, **tensors)
        nodes = len(coarsening.lattice.subdomain.perimeter)
        self._around = torch.empty(problems * task.largest, nodes, **tensors)
        self._moving = task.clock.part("gather_scatter")
        self._solving = task.clock.part("coarse")

    def correct(
        self, v: Interface, out: Interface, residual: torch.Tensor, sums: np.ndarray, *, alone: bool
    ) -> np.ndarray:
        """Solve for the correction to the residual ``T v - v``, or a multiple of it.

        Returns ``sums``, added up over the ranks by the way.

        Parameters
        ----------
        out
            Of the sweep; the residual is ``out - v``.
        residual
            It, at the owned lattice nodes, ``(n, rows, columns)``.
        alone
            Whether, at nodes of other ranks, ``out`` holds this rank's contribution alone.
        """
        if self._coarsening.points == 1:  # there are no others
            return self._solve(residual.flatten(1), sums, self._correction)
        self._coarsening.sample(out, self._residual, minus=v, alone=alone)
        return self._solve(self._residual, sums, self._correction)

    def sweep(self, batch: Batch, out: torch.Tensor) -> None:
        """Write ``T P c`` on the centre lines of a batch, as they respond, to ``out``, ``(B, 2 (m - 1))``."""
        around = self._around[: len(out)]
        with self._moving:
            self._transfer.restrict(self._correction, batch, around)
        with self._solving:
            torch.mm(around, self._responses, out=out)


def hat_responses(
    block: Block, operator: EllipticOperator, responses: torch.Tensor, points: int
) -> torch.Tensor:
    """Return weighted responses ``(8 q, 2 (m - 1))`` that reproduce the exact solutions that the hats do.

    For a linear local solver under the lifting this changes nothing; one that is not linear gives responses that do
    not add up, and the coarse operator would be wrong just for the smoothest functions.
    """
    subdomain = block.lattice.subdomain
    hats = subdomain.hats(points)
    around, inside, known = (  # (4 m, J), (2 (m - 1), J) and (8 q, J)
        exact_solutions(operator, subdomain, 2, where)
        for where in (subdomain.perimeter, subdomain.centre_lines, subdomain.coarse_nodes(points))
    )
    kept = np.abs(hats.T @ known - around).max(axis=0) < 1e-12
    if not kept.any():
        return responses
    known, inside = known[:, kept], block.lattice.centre_weights[:, None] * inside[:, kept]
    missing = inside.T - known.T @ responses.double().cpu().numpy()
    return responses + torch.as_tensor(np.linalg.pinv(known.T) @ missing).to(responses)
