"""What flows between control volumes where an equation is not linear: its own residual, with nothing given on sides."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from mosaicdd.lattice.axes import at, ends, last
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.operators.nonlinear_part import NonlinearPart
from mosaicdd.problems.operators.patch import Patch, neighbours_of, offsets
from mosaicdd.problems.quantities.volumes_part import VolumesPart
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
        if not self.operator.one_by_one:
            raise Unsupported(
                "what flows depends on the slope across, too, so there is no flux of each grid edge: ask for flow() "
                "and balance()"
            )
        forth = self._through_faces(u)[1]
        axes = self.present.ndim
        return tuple(flow[last(ends(axis, axes)[0])] for axis, flow in enumerate(forth))

    def to_neighbours(self, u: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return what each node's equation has of its neighbours along each axis, of the corners evenly."""
        if self.operator.one_by_one:
            back, forth = self._through_faces(u)
            return tuple(b + f for b, f in zip(back, forth, strict=True))
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
        alone = Patch.uniform(values, self.present.ndim)
        with torch.no_grad():
            reaction = self.operator.in_squares(alone, self._patches, self.grid.spacing)
        return self.grid.spacing**2 * self.volumes * np.broadcast_to(reaction.numpy(), u.shape)

    def falling(self, u: np.ndarray) -> np.ndarray:
        """Return what would flow from each node if its value fell to zero over the domain, times the cells along it."""
        most = max(self.grid.shape)
        values = torch.from_numpy(u)
        less = [values * (1 - 1 / most)] * (2 * self.present.ndim)
        with torch.no_grad():
            if self.operator.one_by_one:
                _, flows = self.operator.flows([values, *less], self._patches, self.grid.spacing)
            else:
                patch = Patch(values, *less[:1] * (len(offsets(self.present.ndim)) - 1))
                flows = [self.operator.at(patch, self._patches, self.grid.spacing)]
        total = sum(abs(flow.numpy()) for flow in flows)
        return self.grid.spacing**2 * most * np.broadcast_to(total, u.shape)

    @cached_property
    def _patches(self) -> dict[str, Patch]:
        return {name: Patch.of(values, self.present.ndim) for name, values in self.fields.items()}

    def _through_faces(self, u: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return what flows from each node to the one before along each axis, and to the one after it."""
        axes = self.present.ndim
        padded = np.pad(u, [(0, 0), *[(1, 1)] * axes], mode="edge")
        values = [torch.from_numpy(u)]
        steps = neighbours_of(axes)
        for step in steps:
            place = tuple(slice(1 + s, 1 + s + n) for s, n in zip(step, u.shape[1:], strict=True))
            values.append(torch.from_numpy(padded[(slice(None), *place)]))
        with torch.no_grad():
            _, flows = self.operator.flows(values, self._patches, self.grid.spacing)
        before: list[np.ndarray] = []
        after: list[np.ndarray] = []
        for axis, k in enumerate(self.between.along):
            for totals, way, sides in ((before, -1, (1, 0)), (after, 1, (0, 1))):
                flow = flows[steps.index(at(axis, axes, way, 0))].numpy()
                faces = np.pad(k, at(axis, axes, sides, (0, 0)))
                totals.append(self.grid.spacing**2 * faces * flow)
        return before, after
