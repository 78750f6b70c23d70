"""What flows between control volumes where an equation is not linear: its own residual, with nothing given on sides."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.operators.nonlinear_part import NonlinearPart
from mosaicdd.problems.operators.patch import StencilValues, offsets
from mosaicdd.quantities.volumes_part import VolumesPart
from mosaicdd.unsupported import Unsupported


@dataclass(frozen=True)
class NonlinearVolumesPart(VolumesPart):
    """Those of an equation whose neighbours count one by one, or that is a sum over cells; on rectangles and boxes.

    ``between`` are the faces, times the factor of flows where there is one; ``ring``: the nodes, and one more all around,
    where ``fields`` are known; ``cells``: what the domain has of the cells between these.
    """

    operator: Nonlinear
    grid: Grid
    ring: Part
    fields: dict[str, torch.Tensor]
    cells: np.ndarray

    def edge_flows(self, u: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return what flows to the next node along each axis; `Unsupported` if it does not flow between two nodes."""
        if not self.operator.two_point_flux:
            raise Unsupported(
                "what flows depends on the slope across, too, so there is no flux of each grid edge: ask for flow() "
                "and balance()"
            )
        return tuple(forth for forth, _ in self._through_faces(u))

    def to_neighbours(self, u: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return what each node's equation has of its neighbours along each axis, of the corners evenly."""
        if self.operator.two_point_flux:
            totals = [np.zeros(u.shape) for _ in self._ends]
            ways = zip(totals, self._through_faces(u), self._ends, strict=True)
            for total, (forth, back), (low, high) in ways:
                total[low] += forth
                total[high] += back
            return tuple(totals)
        part = NonlinearPart(
            self.operator, self.grid, self.ring, self.fields, torch.from_numpy(self.cells)
        )
        around = [(0, 0), *[(1, 1)] * self.present.ndim]
        total = np.stack([part.residual(values) for values in np.pad(u, around, mode="edge")])
        total -= self.consumed(u)
        return (total / self.present.ndim,) * self.present.ndim

    def consumed(self, u: np.ndarray) -> np.ndarray:
        """Return what the reaction takes in each volume."""
        values = torch.from_numpy(u)
        alone = StencilValues.uniform(values, self.present.ndim)
        with torch.no_grad():
            reaction = self.operator.in_squares(alone, self._patches, self.grid.spacing)
        return self.grid.spacing**2 * self.volumes * np.broadcast_to(reaction.numpy(), u.shape)

    def falling(self, u: np.ndarray) -> np.ndarray:
        """Return what would flow from each node if its value fell to zero over the domain, times the cells along it."""
        most = max(self.grid.shape)
        values = torch.from_numpy(u)
        less = [values * (1 - 1 / most)] * (2 * self.present.ndim)
        with torch.no_grad():
            if self.operator.two_point_flux:
                _, flows = self.operator.flows([values, *less], self._patches, self.grid.spacing)
            else:
                patch = StencilValues(values, *less[:1] * (len(offsets(self.present.ndim)) - 1))
                flows = [self.operator.at(patch, self._patches, self.grid.spacing)]
        total = sum(abs(flow.numpy()) for flow in flows)
        return self.grid.spacing**2 * most * np.broadcast_to(total, u.shape)

    @cached_property
    def _patches(self) -> dict[str, StencilValues]:
        return {
            name: StencilValues.of(values, self.present.ndim)
            for name, values in self.fields.items()
        }

    def _through_faces(self, u: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return what flows out of the low and of the high nodes of the edges along each axis."""
        axes = self.present.ndim
        ring = torch.from_numpy(np.pad(u, [(0, 0), *[(1, 1)] * axes], mode="edge"))
        faces = [torch.from_numpy(k) for k in self.between.along]
        values, h = StencilValues.of(ring, axes), self.grid.spacing
        with torch.no_grad():
            _, through = self.operator.through_faces(values, faces, self._patches, h)
        return [(forth.numpy(), back.numpy()) for forth, back in through]
