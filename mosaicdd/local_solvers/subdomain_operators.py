"""Solvers of media by operators in ``g`` that a network makes, one for each subdomain (`networks.operator`).

Shape letters: ``P = 32`` coarse nodes around a subdomain, ``I = 49`` inside, ``Q`` of these, ``n`` problems.
"""

from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.transfer import Batch, batch_shape
from mosaicdd.local_solvers.networks.operator import (
    REACTION,
    ROUGHNESS,
    SEEN,
    OperatorNetwork,
    channels_of,
    largest_reaction,
    place,
    roughness,
)
from mosaicdd.local_solvers.subdomain_graphs import AROUND, CELLS, INSIDE
from mosaicdd.local_solvers.upscaled import UpscaledSolver
from mosaicdd.local_solvers.upscaling import RATIO, averaged, fine_part, mirrored
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.problem import Problem
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.tensors import Tensors

_ROWS = 4  # of subdomains whose operators are made at once
_BYTES = 140  # for each node: matrices of subdomains, for data around and for sources
_OUTER = RATIO * SEEN  # fine cells that are seen around subdomains


class OperatorSolver(UpscaledSolver):
    """Subdomains of a medium, each with an operator by a network with a card."""

    method = "operators"

    def __init__(
        self, name: str, problem: Problem, grid: Grid, network: OperatorNetwork, card: ModelCard
    ):
        super().__init__(name, problem, grid, averaged, (CELLS,))
        self.network = network
        self.card = card

    def bytes_per_node(self, itemsize: int, problems: int, *, certified: bool) -> float:
        """Return what the matrices take, besides."""
        more = super().bytes_per_node(itemsize, problems, certified=certified)
        return problems * _BYTES + more


class SubdomainOperators:
    """``u = G g + w`` in the subdomains of a block of the coarse lattice.

    Attributes
    ----------
    operators
        ``G (rows, columns, I, P)``.
    outside
        ``(rows, columns)``, which are outside of the network's range; there ``G`` is of averages.
    """

    def __init__(self, solver: OperatorSolver, block: Block, **tensors: Unpack[Tensors]):
        self._solver, self._block, self._tensors = solver, block, tensors
        shape = block.region_subdomains
        self.operators = torch.empty(*shape, INSIDE, AROUND, **self._tensors)
        self._inverses = torch.empty(*shape, INSIDE, INSIDE, **self._tensors)
        self.outside = torch.zeros(shape, dtype=torch.bool)
        self._loads: torch.Tensor | None = None  # (n or 1, rows, columns, I)
        self._plans: list[OperatorPlan] = []
        for start in range(0, shape[0], _ROWS):
            self._make(slice(start, min(start + _ROWS, shape[0])))

    @torch.inference_mode()
    def _make(self, rows: slice) -> None:
        """Make the operators of some rows of subdomains."""
        fine, limits = self._fine(rows), self._solver.card.ranges
        fields = channels_of(fine)
        outside = roughness(fields["x"], fields["y"])[0] > limits[ROUGHNESS][1]
        if "c" in fields:
            outside |= largest_reaction(fields["c"])[0] > limits[REACTION][1]
        by_data, by_source = self._solver.network.operators(fine, ~outside)
        self.operators[rows] = by_data.unflatten(0, outside.shape).to(**self._tensors)
        self._inverses[rows] = by_source.unflatten(0, outside.shape).to(**self._tensors)
        self.outside[rows] = outside

    def _fine(self, rows: slice) -> Conductances:
        """Return the medium around some rows of subdomains."""
        s, grid = CELLS // 2, self._solver.medium.grid
        first, last = self._block.first, self._block.last
        part = (
            slice((first[0] + rows.start) * s, (first[0] + rows.stop + 1) * s + 1),
            slice(first[1] * s, last[1] * s + 1),
        )
        place, missing = fine_part(part, grid, _OUTER)
        return mirrored(self._solver.operator.conductances(grid, place), missing)

    def load(self) -> None:
        """Take the source of the problem as it is now, for all plans."""
        self._loads = None
        problem = self._solver.source.problem
        if problem.source is not None:
            f = self._solver.source.on(self._block, **self._tensors)
            f = f * self._block.lattice.grid.spacing**2
            half = CELLS // 2
            inner = f[:, 1:, 1:].unfold(1, CELLS - 1, half).unfold(2, CELLS - 1, half)
            self._loads = torch.einsum("rcij,nrcj->nrci", self._inverses, inner.flatten(3))
        for plan in self._plans:
            plan.load(self._loads)

    def plan(
        self,
        block: Block,
        points: np.ndarray,
        *,
        weights: np.ndarray | None = None,
        kept: bool = True,
    ) -> "OperatorPlan":
        """Plan the operators of a smaller block for inner nodes ``(Q, 2)``, with factors ``(Q,)``."""
        part = tuple(
            slice(a - wide, a - wide + count)
            for a, wide, count in zip(
                block.first, self._block.first, block.region_subdomains, strict=True
            )
        )
        rows = place(torch.from_numpy(points))
        factors = torch.ones(len(points)) if weights is None else torch.from_numpy(weights)
        self._plans.append(OperatorPlan(self, part, rows, factors.to(**self._tensors)))
        return self._plans[-1]


class OperatorPlan:
    """``G g + w`` at some nodes of the subdomains of a block, as `BlockPlan`; ``operators (rows, columns, Q, P)``."""

    def __init__(
        self, operators: SubdomainOperators, part: Batch, rows: torch.Tensor, weights: torch.Tensor
    ):
        self._part, self._rows, self._weights = part, rows, weights
        self.operators = operators.operators[*part][:, :, rows] * weights[:, None]
        self._loads: torch.Tensor | None = None

    @property
    def affine(self) -> bool:
        """Whether there is a source."""
        return self._loads is not None

    def load(self, loads: torch.Tensor | None) -> None:
        """Take what sources do inside subdomains, ``(n or 1, rows, columns, I)``, from now on."""
        if loads is not None:
            loads = loads[:, *self._part][..., self._rows] * self._weights
        self._loads = loads

    def responses(self, g: torch.Tensor) -> torch.Tensor:
        """Return ``G g`` of perimeters ``(k, P)``, ``(rows, columns, k, Q)``."""
        return g @ self.operators.mT

    def __call__(self, batch: Batch, g: torch.Tensor, out: torch.Tensor) -> None:
        """Write the values ``(B, Q)`` of a batch for its perimeters ``(B, P)`` to ``out``."""
        shape = batch_shape(batch)
        operators = self.operators[*batch].flatten(0, 1)  # (b, Q, P)
        perimeters = g.view(-1, len(operators), g.shape[1])
        values = torch.matmul(operators, perimeters.permute(1, 2, 0))  # (b, Q, n)
        out.view(-1, len(operators), out.shape[1]).copy_(values.permute(2, 0, 1))
        if self._loads is not None:
            out.view(-1, *shape, out.shape[1]).add_(self._loads[:, *batch])
