"""The discrete equations tested with an adjoint, whose derivatives by what was given are the gradient.

Of a functional ``J(u)`` and the adjoint ``v``, which is zero where values are given and else solves ``A v = dJ/du``,
the gradient by anything that the equations depend on is that of ``J`` at the given values less the sum of ``v`` times
the equations. Written here once, in torch, which differentiates it, and what comes of it.
"""

from collections.abc import Mapping

import numpy as np
import torch

from mosaicdd.gradients.cell_energy import cell_energy
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.lattice.axes import ends, letters, within
from mosaicdd.problems.discretisation.periodic import GridNodes
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.operators.medium import medium_of
from mosaicdd.problems.shapes.apertures import Cover
from mosaicdd.problems.sides.conditions import Dirichlet

Tensors = Mapping[str, torch.Tensor]


class Lagrangian:
    """Of the nodes that a process speaks for, and of what couples them.

    ``own``: these nodes; ``wide``: they and one more all around, within the grid.
    """

    def __init__(self, parameters: Parameters, own: Part, wide: Part):
        self._parameters, self._wide = parameters, wide
        self._h = parameters.grid.spacing
        cover = Cover.of_cells(GridNodes(parameters.grid.shape, (None, None)).cells(wide))
        self._faces = [torch.from_numpy(cover.of_edges(axis)) for axis in (0, 1)]
        self.volumes = torch.from_numpy(self._h**2 * cover.volumes)
        mine = torch.zeros(self.volumes.shape, dtype=torch.bool)
        mine[within(own, wide)] = True
        values = parameters.problem.conditions.values(
            parameters.grid, parameters.problem.pieces(parameters.grid)
        )
        self.free = torch.ones(self.volumes.shape, dtype=torch.bool)
        self.free.view(-1)[self._places(values.known)[1]] = False
        self._mine = mine & ~self.free
        self._acting = {}
        for name in parameters.parts:
            which, nodes, weights = parameters.acting(name)
            there, places = self._places(nodes)
            counts = mine.view(-1)[places].numpy()
            entries = which[there][counts], places[counts], weights[there][counts]
            self._acting[name] = tuple(map(torch.from_numpy, entries))
        self._medium = medium = medium_of(parameters.problem.operator)
        numbers = {n: f.number for n, f in medium.fields.items()}
        self._constant = {n: number for n, number in numbers.items() if number is not None}

    def _places(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which of some nodes are wide ones, and their flat places among these."""
        inside = [(n >= p.start) & (n < p.stop) for n, p in zip(nodes.T, self._wide, strict=True)]
        there = inside[0] & inside[1]
        at = (n[there] - p.start for n, p in zip(nodes.T, self._wide, strict=True))
        return there, np.ravel_multi_index(tuple(at), tuple(self.volumes.shape))

    def _diffusion(self, named: Tensors, letter: str) -> torch.Tensor:
        """Return the diffusion along an axis."""
        a = named.get(f"a{letter}{letter}", named.get("a"))
        if a is not None:
            return a
        constant = self._constant.get(f"a{letter}{letter}", self._constant.get("a", 1.0))
        return torch.tensor(constant, dtype=torch.float64)

    def _conductances(self, named: Tensors) -> list[torch.Tensor]:
        """Return those of the edges along each axis."""
        between = []
        for axis, letter in enumerate(letters(2)):
            a = self._diffusion(named, letter)
            faces = self._faces[axis]
            if a.shape == tuple(n - 1 for n in self.volumes.shape):  # per cell
                sides = torch.nn.functional.pad(a, (1, 1) if axis == 0 else (0, 0, 1, 1))
                low, high = ends(1 - axis, 2)
                between.append((sides[low] + sides[high]) / 2)
                continue
            low, high = ends(axis, 2)
            resistance = (0.5 / a).expand(self.volumes.shape)
            between.append(faces / (resistance[low] + resistance[high]))
        return between

    def __call__(
        self, named: Tensors, before: Tensors, u: torch.Tensor, v: torch.Tensor, w: torch.Tensor
    ) -> torch.Tensor:
        """Return what it is, whose derivatives by what is given are those of the functional.

        ``named``: of the wide nodes or the cells between them, of sides all; ``before``: the same as constants;
        ``w``: the derivatives of the functional by each value.
        """
        for name, (which, places, weights) in self._acting.items():
            if name in named and isinstance(self._parameters.parts[name].condition, Dirichlet):
                change = weights * (named[name] - before[name])[which]
                u = u.reshape(-1).index_add(0, places, change).reshape(u.shape)
        v = torch.where(self.free, v, 0.0)
        total = (torch.where(self._mine, w, 0.0) * u).sum()
        if self._medium.couples_corners:
            constant = torch.tensor(self._constant.get("axy", 0.0), dtype=torch.float64)
            along = [self._diffusion(named, letter) for letter in letters(2)]
            tensor = [*along, named.get("axy", constant)]
            total = total - cell_energy(tensor, u, v, bilinear=self._medium.bilinear)
        for axis, k in enumerate([] if self._medium.couples_corners else self._conductances(named)):
            low, high = ends(axis, 2)
            total = total - (k * (u[high] - u[low]) * (v[high] - v[low])).sum()
        c = named.get("c", torch.tensor(self._constant.get("c", 0.0), dtype=torch.float64))
        total = total - (self.volumes * (c * u - named.get("f", torch.zeros(()))) * v).sum()
        for name, (which, places, weights) in self._acting.items():
            if isinstance(self._parameters.parts[name].condition, Dirichlet):
                continue
            flat = self._h * weights * v.reshape(-1)[places]
            if name in named:
                total = total + (flat * named[name][which]).sum()
            if name + ".alpha" in named:
                total = total - (named[name + ".alpha"] * flat * u.reshape(-1)[places]).sum()
        return total
