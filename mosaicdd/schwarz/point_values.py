"""The solution at arbitrary points, by a network, which takes any position within its subdomain, or interpolated.

A network's value is blended by the partition of unity from the up to four subdomains that cover a point: between
nodes a network is worst beside its perimeter, where the weights vanish. (Of a smooth solution, errors
from one tile alone were twice as large.) The field is not blended, so at grid nodes the two differ by
errors of the network. On the edge of the domain the boundary data are interpolated linearly.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import torch

from mosaicdd.axes import Slices, family
from mosaicdd.discretisation.system import Method
from mosaicdd.grid.faces import perimeter_nodes
from mosaicdd.grid.points import interpolate, nodes_around
from mosaicdd.grid.strips import Strip
from mosaicdd.grid.window import Window
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.block import Block
from mosaicdd.schwarz.fill import FILL_HALO
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.layouts import InterfaceMovement
from mosaicdd.tensors import Tensors


@dataclass(frozen=True)
class PointCover:
    """For some points, one of the subdomains that cover each, and its weight there."""

    index: np.ndarray  # which of the points, ``(B,)``
    centres: np.ndarray  # lattice nodes in the middle of the subdomains, ``(B, 2)``
    # The points in cells from the lower-left corners of the subdomains, ``(B, 2)``
    local: np.ndarray
    weights: np.ndarray  # of the partition of unity, ``(B,)``


def owned_points(points: np.ndarray, block: Block) -> np.ndarray:
    """Say which points ``(q, 2)`` on the grid lie in lattice cells that a block owns: ``(q,)``."""
    cells = _lattice_cells(points, block)
    owned = np.ones(len(points), bool)
    for axis, first in enumerate(block.first):
        part = block.owned_cells(axis)
        owned &= (cells[:, axis] >= first + part.start) & (cells[:, axis] < first + part.stop)
    return owned


def covers(points: np.ndarray, index: np.ndarray, block: Block) -> Iterator[PointCover]:
    """Yield up to four covers (in space eight) of the points ``points[index]``, whose weights add up to 1.

    The weights are hats along all axes, at any point: in a lattice cell they are bilinear, and 1
    towards an edge of the domain, where no other subdomain reaches.
    """
    s, chosen = block.lattice.spacing, points[index]
    cells = _lattice_cells(chosen, block)
    fraction = chosen / s - cells
    fraction[cells == 0] = 1.0
    fraction[cells == np.array(block.lattice.cells) - 1] = 0.0
    for corner in itertools.product((0, 1), repeat=cells.shape[1]):
        upper = np.array(corner)
        weights = np.where(upper == 1, fraction, 1.0 - fraction).prod(axis=1)
        within = weights > 0
        centres = (cells + upper)[within]
        local = chosen[within] - (centres - 1) * s
        yield PointCover(index[within], centres, local, weights[within])


def _lattice_cells(points: np.ndarray, block: Block) -> np.ndarray:
    """Return the lattice cells ``(q, 2)`` that points lie in; the last ones are closed."""
    last = np.array(block.lattice.cells) - 1
    return np.minimum(np.floor(points / block.lattice.spacing).astype(int), last)


class PointValues:
    """Evaluates solutions at points; every rank those that lie in its block.

    `Unsupported` if the local solver has values at grid nodes only, or has a source.
    ``points``: ``(q, 2)``, (y, x) in cells of the grid, the same on all ranks.
    """

    takes_source = False

    def __init__(
        self,
        ranks: Ranks,
        local_solver: Method,
        movement: InterfaceMovement,
        points: np.ndarray,
        **tensors: Unpack[Tensors],
    ):
        self._ranks = ranks
        self._movement = movement
        self._points = points
        self._plan = local_solver.plan_points(**tensors)

    def seen(self, strips: Iterator[Strip]) -> Iterator[Strip]:
        """Pass strips of the field on; nothing of it is needed."""
        return strips

    def __call__(self, v: Interface, boundaries: Sequence[Boundary]) -> np.ndarray:
        """Return the values of each problem, ``(n, q)``, on all ranks."""
        wide = self._movement.widen(v, FILL_HALO)
        block, points = wide.block, self._points
        values = np.zeros((wide.problems, len(points)))
        ends = np.array(block.lattice.grid.shape)
        owned = owned_points(points, block)
        inside = ((points > 0) & (points < ends)).all(axis=1)
        for cover in covers(points, np.flatnonzero(owned & inside), block):
            for problem in range(wide.problems):
                values[problem, cover.index] += cover.weights * self._predict(wide, problem, cover)
        edge = np.flatnonzero(owned & ~inside)
        for problem, boundary in enumerate(boundaries):
            values[problem, edge] = _on_edge(boundary, points[edge])
        return self._ranks.sum(values)

    def _predict(self, v: Interface, problem: int, cover: PointCover) -> np.ndarray:
        """Return what one subdomain per point predicts there."""
        values, chunk = np.empty(len(cover.index)), self._plan.chunk
        for start in range(0, len(values), chunk):
            part = slice(start, start + chunk)
            g = perimeters_at(v, problem, cover.centres[part])
            values[part] = self._plan(g, cover.local[part]).cpu().numpy()
        return values


class InterpolatedValues:
    """Values at points, linear along each axis between the nodes: each rank adds up the shares of its nodes.

    They are those of `lattice.points.interpolate`, of domains that are no rectangles `interpolate_within`, of fields
    that pass strip by strip.

    Parameters
    ----------
    points
        ``(q, axes)``, in cells of the grid, the same on all ranks.
    window
        The part of the field that the strips are of; a point outside of it is a `ValueError`.
    level
        Of a domain that is no rectangle, at some nodes of the grid: negative inside.
    """

    takes_source = True

    def __init__(
        self,
        ranks: Ranks,
        points: np.ndarray,
        window: Window,
        level: Callable[[Slices], np.ndarray] | None,
    ):
        self._ranks, self._level = ranks, level
        inside = points - np.array(window.start)
        self._corners = [
            (np.stack(place, axis=1) + np.array(window.start), weights)
            for place, weights in nodes_around(inside, window.shape)
        ]
        self._sums = np.zeros((3, len(points)))

    def seen(self, strips: Iterator[Strip]) -> Iterator[Strip]:
        """Pass strips of the field of one problem on, and add up what they are at the points."""
        self._sums[:] = 0.0
        for strip in strips:
            self._add(strip)
            yield strip

    def _add(self, strip: Strip) -> None:
        place = strip.place
        low, high = np.array([(part.start, part.stop) for part in place]).T
        for nodes, weights in self._corners:
            here = np.flatnonzero(((nodes >= low) & (nodes < high) & (weights[:, None] > 0)).all(1))
            if not len(here):
                continue
            there, share = tuple((nodes[here] - low).T), weights[here]
            held = strip.owned[0][tuple(map(torch.from_numpy, there))].double().cpu().numpy()
            if self._level is not None:
                around = tuple(slice(int(at.min()), int(at.max()) + 1) for at in nodes[here].T)
                level = self._level(around)[tuple(nodes[here].T - [[p.start] for p in around])]
                self._sums[2, here] += share * level
                known = np.isfinite(held) | (level < 0)
                share = share * known
                held = np.where(known, held, 0.0)
            self._sums[:2, here] += share * held, share

    def __call__(self, v: Interface, boundaries: Sequence[Boundary]) -> np.ndarray:
        """Return the values of the problem whose strips passed, ``(1, q)``, on all ranks."""
        values, weights, level = self._ranks.sum(self._sums)
        if self._level is None:
            return values[None]
        outside = (level > 0) | (weights == 0)
        return np.where(outside, np.nan, values / np.where(weights > 0, weights, 1.0))[None]


def perimeters_at(v: Interface, problem: int, centres: np.ndarray) -> torch.Tensor:
    """Gather the perimeters of subdomains given by their centres, ``(B, 2)``: ``(B, P)``."""
    block, device = v.block, v.flat.device
    s, m = block.lattice.spacing, block.lattice.subdomain.cells
    nodes = perimeter_nodes((m,) * len(v.lines))
    corners = (centres - np.array(block.first) - 1) * s
    places = torch.from_numpy(corners[:, None] + nodes).to(device)  # in the region, (B, P, 2)
    out = v.flat.new_empty(places.shape[:2])
    for axis, lines in enumerate(v.lines):
        on = np.flatnonzero(nodes[:, axis] % m == 0)
        line, *along = (places[:, on, other] for other in family(axis, len(v.lines)))
        out[:, on] = lines[problem][(line // s, *along)]
    return out


def _on_edge(boundary: Boundary, points: np.ndarray) -> np.ndarray:
    """Interpolate boundary data at points ``(q, 2)`` on the edge of the domain."""
    values = np.empty(len(points))
    for (axis, end), edge in boundary.edges.items():
        here = points[:, axis] == end * boundary.shape[axis]
        along = np.delete(points[here], axis, axis=1)
        values[here] = interpolate(edge[None], along)[0]
    return values
