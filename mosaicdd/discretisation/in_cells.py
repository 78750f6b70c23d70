"""Coefficients per cell of nonlinear equations.

Each of the cells around a node has its reaction times what it has of the volume, and what flows along each edge beside
it times what it has of the face, both by its own values.
"""

import itertools
from collections.abc import Mapping

import numpy as np
import torch

from mosaicdd.axes import others
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Field, Part, Periods
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.operators.patch import Offset, StencilValues, neighbours_of
from mosaicdd.problems.shapes.apertures import Apertures
from mosaicdd.problems.shapes.sampling import cells_around


class InCells:
    """The shares of ``K`` nodes' volumes and faces in the cells around them, and fields per cell.

    Parameters
    ----------
    part, nodes
        Nodes of the grid, and which of them count, flat, ``(K,)``: none on the edge of the part.
    cover
        What the domain has of the cells around the nodes of the part.
    """

    def __init__(
        self,
        operator: Nonlinear,
        grid: Grid,
        part: Part,
        nodes: np.ndarray,
        cover: Apertures,
        periods: Periods,
    ):
        self._operator, self._h = operator, grid.spacing
        self._axes, self._nodes = len(part), nodes
        around = grid, part, cover
        signs = {name: operator.signs.get(name) for name in operator.in_cells}

        def known(field: Field, positive: bool | None) -> np.ndarray:
            return cells_around(field, *around, positive=positive, periods=periods)[0]

        fields = {name: known(operator.residual_fields[name], sign) for name, sign in signs.items()}
        counts: np.ndarray | float = 1.0
        if operator.factor is not None and operator.fields[operator.factor].per_cell(grid):
            counts = known(operator.fields[operator.factor], True)
        corners = list(itertools.product((1, -1), repeat=self._axes))
        quarters = zip(corners, cover.quarters, strict=True)
        shares = np.stack([self._at(share, corner) for corner, share in quarters])
        self._quarters = dict(zip(corners, _parts(shares), strict=True))
        self._fields = {
            corner: {name: self._at(values, corner) for name, values in fields.items()}
            for corner in corners
        }
        self._faces = [
            self._beside(step, [counts * face for face in cover.faces[_axis(step)]])
            for step in neighbours_of(self._axes)
        ]

    def _at(self, cells: np.ndarray, corner: Offset) -> np.ndarray:
        """Return the values of the cells that lie towards a corner from the nodes, ``(K,)``."""
        place = tuple(slice(1, None) if way > 0 else slice(None, -1) for way in corner)
        return cells[place].reshape(-1)[self._nodes]

    def _beside(self, step: Offset, faces: list[np.ndarray]) -> dict[Offset, np.ndarray]:
        """Return the shares of the cells beside the edges along a step, by corners."""
        axis = _axis(step)
        corners = [
            (*across[:axis], step[axis], *across[axis:])
            for across in itertools.product((1, -1), repeat=len(others(axis, self._axes)))
        ]
        shares = np.stack([self._at(f, corner) for corner, f in zip(corners, faces, strict=True)])
        return dict(zip(corners, _parts(shares), strict=True))

    def outflow(
        self,
        values: list[torch.Tensor],
        fields: Mapping[str, StencilValues],
        volumes: torch.Tensor,
        weights: torch.Tensor,
        which: slice | np.ndarray,
    ) -> torch.Tensor:
        """Return the reactions of some nodes, and the flows out of them.

        Parameters
        ----------
        values
            Theirs, and those beside.
        fields
            Those that are not per cell.
        volumes, weights
            What reactions count, and flows to each neighbour, ``(2 axes, K)``.
        """
        total = torch.zeros_like(values[0])
        for corner, held in self._fields.items():
            in_cells = {
                n: StencilValues.uniform(_some(v, which), self._axes) for n, v in held.items()
            }
            all_fields = {**fields, **in_cells}
            reaction, flows = self._operator.flows(values, all_fields, self._h, corner=corner)
            total = total + volumes * _some(self._quarters[corner], which) * reaction
            beside = [k for k, faces in enumerate(self._faces) if corner in faces]
            for k, flow in zip(beside, flows, strict=True):
                total = total + weights[k] * _some(self._faces[k][corner], which) * flow
        return total


def _some(values: np.ndarray, which: slice | np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values[which])


def _axis(step: Offset) -> int:
    return int(np.flatnonzero(step)[0])


def _parts(shares: np.ndarray) -> np.ndarray:
    """Return shares, ``(S, K)``, of their sums; zeros where there are none."""
    total = shares.sum(axis=0)
    return shares / np.where(total > 0, total, 1.0)
