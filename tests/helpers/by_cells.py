"""Solutions by an assembly of its own: each cell has a part of the volumes of its corners, and of the faces of its edges.

Newton's method by a sparse factorisation; torch has derivatives of what each cell has. Nothing of the package is used.
"""

import itertools

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.linalg import spsolve

ENDS = {"left": (-1, 0), "right": (-1, -1), "bottom": (-2, 0), "top": (-2, -1), "back": (-3, 0), "front": (-3, -1)}  # fmt: skip
_STEPS = 60
_SHORTEST = 1e-6
_LEFT = 1e-13


class ByCells:
    """A grid of cells of a width ``h``, or one for each axis, those ``inside`` of which make the domain.

    ``sides``: by name ``("value", u)``, ``("flux", g)``, ``("exchange", alpha, g)``, or ``"around"`` of both of a pair.
    """

    def __init__(self, inside, h, sides):
        self.cells, self.axes = inside.shape, inside.ndim
        self.steps = np.broadcast_to(h, inside.ndim)
        nodes = tuple(n + 1 for n in self.cells)
        places = np.indices(nodes)
        for name, side in sides.items():
            if side == "around":
                places[ENDS[name][0]] %= self.cells[ENDS[name][0]]
        self.number, self._inside = np.ravel_multi_index(places, nodes), inside
        size, where = self.number.size, np.argwhere(inside)
        self.corners = list(itertools.product((0, 1), repeat=self.axes))
        self.at = {c: torch.from_numpy(self.number[tuple((where + c).T)]) for c in self.corners}
        self.volumes, self._b, self._alpha = np.zeros(size), np.zeros(size), np.zeros(size)
        for at in self.at.values():
            np.add.at(self.volumes, at.numpy(), np.prod(self.steps) / 2**self.axes)
        self._known = np.full(size, np.nan)
        for name, side in sides.items():
            self._put(*ENDS[name], side)

    def _put(self, axis, end, side):
        if side == "around":
            return
        face = np.argwhere(np.take(self._inside, end, axis))
        share = np.prod(self.steps) / self.steps[axis] / 2 ** (self.axes - 1)
        last = 0 if end == 0 else self.cells[axis]
        for corner in itertools.product((0, 1), repeat=self.axes - 1):
            at = np.insert(face + np.array(corner, int), self.axes + axis, last, axis=1)
            at = self.number[tuple(at.T)]
            if side[0] == "value":
                self._known[at] = side[1]
                continue
            np.add.at(self._b, at, share * side[-1])
            if side[0] == "exchange":
                np.add.at(self._alpha, at, share * side[1])

    def loads(self, f):
        """Return what each node has of the amounts of a source per cell."""
        b, amounts = np.zeros(self.volumes.size), np.prod(self.steps) * f[self._inside]
        for at in self.at.values():
            np.add.at(b, at.numpy(), amounts / 2**self.axes)
        return b

    def solution(self, flow, reaction, f, *, beside=0.0, energy=None, **coefficients):
        """Return the values at the nodes, NaN outside.

        Parameters
        ----------
        flow, reaction
            Of the coefficients of cells, and values: ``flow(q, u, other, way)`` times the spacing, to the node at the other
            end of an edge, ``way`` 1 where this is further along the axis; ``reaction(q, u)`` per volume.
        beside
            Of a source at the nodes.
        energy
            ``energy(q, squared slope)`` per volume in the place of flows.
        """
        known = ~np.isnan(self._known)
        active = (self.volumes > 0) & ~known
        b = self._b + self.loads(f) + self.volumes * beside
        q = {name: torch.from_numpy(v[self._inside]) for name, v in coefficients.items()}
        u = np.where(known, self._known, np.where(active, 0.3, 0.0))
        left, matrix = self._equations(u, q, flow, reaction, energy, b)
        for _ in range(_STEPS):
            change, length = np.zeros(len(u)), 1.0
            change[active] = spsolve(matrix[active][:, active].tocsc(), -left[active])
            size = np.linalg.norm(left[active])
            while True:
                tried = u + length * change
                left, matrix = self._equations(tried, q, flow, reaction, energy, b)
                if np.linalg.norm(left[active]) < size or length < _SHORTEST:
                    break
                length /= 2
            u = tried
            if np.abs(length * change).max() <= _LEFT:
                break
        assert np.linalg.norm(left[active]) <= 1e-12 * np.linalg.norm(b)
        return np.where(active | known, u, np.nan)[self.number]

    def _equations(self, u, q, flow, reaction, energy, b):
        """Return the residual of all nodes, and its matrix."""
        left, axes = self._alpha * u - b, self.axes
        corner_volume = np.prod(self.steps) / 2**axes
        at = list(self.at.values())
        every = range(len(u))
        entries = [(self._alpha, every, every)]
        leaves = [torch.from_numpy(u)[k].requires_grad_() for k in at]

        def enter(row, values):
            """Add up what the corners of cells have, and its derivatives by all corners' values."""
            np.add.at(left, at[row].numpy(), values.detach().numpy())
            slopes = torch.autograd.grad(values.sum(), leaves, allow_unused=True, retain_graph=True)
            for column, slope in enumerate(slopes):
                if slope is not None:
                    entries.append((slope.numpy(), at[row].numpy(), at[column].numpy()))

        squares = 0.0
        for row, corner in enumerate(self.corners):
            enter(row, corner_volume * (reaction(q, leaves[row]) + 0.0 * leaves[row]))
            rises = []
            for axis in range(axes):
                other = leaves[self.corners.index(_beyond(corner, axis))]
                rises.append((leaves[row] - other) / self.steps[axis])
                if energy is None:
                    through = flow(q, leaves[row], other, -1 if corner[axis] else 1)
                    enter(row, 2 * corner_volume / self.steps[axis] ** 2 * through)
            if energy is not None:
                squares = squares + energy(q, sum(rise**2 for rise in rises)).sum()
        if energy is not None:
            total = corner_volume * squares
            for row, slope in enumerate(torch.autograd.grad(total, leaves, create_graph=True)):
                enter(row, slope)
        values, rows, columns = (np.concatenate(part) for part in zip(*entries, strict=True))
        return left, coo_array((values, (rows, columns)), shape=(len(u),) * 2).tocsr()


def _beyond(corner, axis):
    return (*corner[:axis], 1 - corner[axis], *corner[axis + 1 :])
