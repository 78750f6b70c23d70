"""The exact solver: a dense operator on all subdomains, or the equations of the whole grid.

Local solvers that are linear in the perimeter values are planned as one matrix product, half of one, of cubes an
eighth.

In a square, the reflection through the centre, ``(y, x) -> (m - y, m - x)``, shifts a perimeter by half its
length, so that folding it reads whole rows, and reverses the query points line by line. Sums and
differences of the two halves of a perimeter give the even and the odd part of the values at half of
the points; their sum and difference are the values.

In a cube values split along each axis into an even and an odd part; of three axes there are eight kinds, and an
operator that commutes with the reflections maps each kind to itself. Sums and differences make these parts, eight
small products take the place of a large one, and sums and differences put the results together: these are products,
too, with a matrix of signs. Products are numpy's, which of matrices that small are faster than torch's, and than
additions axis by axis. Nodes come as *representatives*, whose coordinates are at most ``m / 2``, and their images:
slot ``(e, r)`` is node ``r`` reflected in the axes where ``e`` is 1. A node in the middle of an axis has several
slots.

Shape letters: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``Q = R N`` query points in ``R``
lines of ``N`` that are each reversed, ``H`` points in the first half of a line, its centre included.
"""

import functools
import itertools
from functools import lru_cache
from typing import Any, Unpack

import numpy as np
import torch

from mosaicdd.discretisation.discrete import DirichletSystem
from mosaicdd.discretisation.system import Method, system_of
from mosaicdd.grid.grid import Grid
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.block import fits
from mosaicdd.schwarz.local_solvers.bound import ChunkedPlan, Plan, SharedSolver
from mosaicdd.schwarz.local_solvers.source import Source
from mosaicdd.tensors import Tensors

_ASYMMETRY = 1e-12  # of an operator, relative to its largest entry, that counts as rounding
_CHUNK_VALUES = 300_000  # that a chunk of subdomains reads and writes; bounds the plan's memory
# Columns of a product that MKL works on at once: a remainder costs more than zeros in its place.
_COLUMNS = {torch.float64: 12, torch.float32: 16}
_SLOTS = 2**16  # in a chunk of subdomains: its buffers stay in the cache
_PROBES = 4  # random perimeters that show an asymmetry


def _reflection_plan(operator: np.ndarray, lines: int, dtype: torch.dtype) -> ChunkedPlan:
    """Plan an operator that commutes with the reflection through the centre, on a processor.

    The reversed half of a line is written through a view of negative stride, which torch does not
    have: the additions after the products are numpy's, on the same memory.
    ``lines``: ``R``, as `reversed_lines` found it.
    """
    points, perimeter = operator.shape
    line = lines, points // lines
    half = -(-line[1] // 2)
    rows = operator.reshape(*line, perimeter)[:, :half]
    first, second = np.split(rows.reshape(-1, perimeter) / 2, 2, axis=1)
    width, columns = len(first), _COLUMNS.get(dtype, 1)  # R H
    padded = -(-width // columns) * columns
    operators = torch.zeros(2, perimeter // 2, padded, dtype=dtype)
    operators[..., :width] = torch.as_tensor(np.stack([first + second, first - second])).mT
    chunk = max(1, _CHUNK_VALUES // (perimeter + points))
    memory = torch.empty(2 * chunk * (perimeter // 2 + padded), dtype=dtype)

    @functools.cache  # to make them anew takes as long as some products
    def views(subdomains: int) -> tuple[Any, ...]:
        """Return views: the halves' sums and differences ``(2, B, P/2)``, the products, and their even and odd parts."""
        sizes = [subdomains * perimeter, 2 * subdomains * padded]
        folded, parts = memory[: sum(sizes)].split(sizes)
        folded, parts = folded.view(2, subdomains, -1), parts.view(2, subdomains, padded)
        even, odd = parts[..., :width].unflatten(2, (-1, half)).numpy()
        return folded, *folded, parts, even, odd

    def apply(g: torch.Tensor, out: torch.Tensor) -> None:
        low, high = g.chunk(2, dim=1)
        values = out.unflatten(1, line).numpy()  # (B, R, N)
        folded, total, difference, parts, even, odd = views(len(g))
        torch.add(low, high, out=total)
        torch.sub(low, high, out=difference)
        torch.bmm(folded, operators, out=parts)
        np.add(even, odd, out=values[..., :half])
        np.subtract(even, odd, out=values[..., ::-1][..., :half])

    return ChunkedPlan(chunk, apply)


def reversed_lines(points: np.ndarray, subdomain: Subdomain) -> int | None:
    """Return in how many equal lines the reflection through the centre reverses the points.

    One for the interior, row by row; two for the centre lines. None for any other order of points.
    """
    points = np.asarray(points)
    if points.shape[1] != 2:
        return None
    for lines in (1, 2):
        if len(points) % lines == 0:
            line = points.reshape(lines, -1, 2)
            if np.array_equal(line[:, ::-1], subdomain.cells - line):
                return lines
    return None


def _parity_plan(
    operator: np.ndarray, points: np.ndarray, subdomain: Subdomain, dtype: torch.dtype
) -> ChunkedPlan:
    """Plan an operator that `keeps_reflections`, on a processor; its points are whole numbers of cells."""
    m, axes = subdomain.cells, subdomain.axes
    kinds = np.array(list(itertools.product((0, 1), repeat=axes)))  # of parts and of images
    signs = 1 - 2 * (kinds @ kinds.T % 2)
    around = _representatives(subdomain.perimeter, m)
    images = _numbers(np.where(kinds[:, None], m - around, around), subdomain.perimeter, m)
    # A stencil without diagonals reads no edges.
    read = np.abs(operator).max(axis=0)[images].any(axis=0)
    around, images = around[read], images[:, read]  # (kinds, r)
    inside = _representatives(points, m)
    share = len(kinds) * 2 ** (2 * around == m).sum(axis=1)  # slots of a node are one
    rows = operator[_numbers(inside, points, m)][:, images] / share  # (R, kinds, r)
    parts = np.einsum("ke,Rer->krR", signs, rows)
    parts[np.abs(parts) <= _ASYMMETRY * np.abs(parts).max()] = 0.0
    products = []
    for kind, part in enumerate(parts):
        used = np.flatnonzero(part.any(axis=0))  # what is odd vanishes in the middle
        if len(used):
            span = slice(int(used[0]), int(used[-1]) + 1)
            products.append((kind, span, torch.tensor(part[:, span], dtype=dtype).numpy()))
    beyond = (2 * points > m).astype(int) @ 2 ** np.arange(axes)[::-1]
    slots = len(inside) * beyond + _numbers(np.minimum(points, m - points), inside, m)
    gather, scatter = (torch.from_numpy(index.reshape(1, -1)) for index in (images, slots))
    signs = torch.tensor(signs, dtype=dtype).numpy()
    chunk = max(1, _SLOTS // (len(kinds) * max(len(around), len(inside))))
    # Values at slots, and of kinds; those of kinds that the products leave out are zero.
    buffers = torch.empty(2, chunk, *images.shape, dtype=dtype)
    results = torch.zeros(2, chunk, len(kinds), len(inside), dtype=dtype)

    def apply(g: torch.Tensor, out: torch.Tensor) -> None:
        count = len(g)
        at_slots, at_points = buffers[:, :count], results[:, :count]
        torch.gather(g, 1, gather.expand(count, -1), out=at_slots[0].view(count, -1))
        values, even_and_odd = at_slots.numpy()
        np.matmul(signs, values, out=even_and_odd)
        of_kinds, put_together = at_points.numpy()
        for kind, span, part in products:
            np.matmul(even_and_odd[:, kind], part, out=of_kinds[:, kind, span])
        np.matmul(signs, of_kinds, out=put_together)
        torch.gather(at_points[1].view(count, -1), 1, scatter.expand(count, -1), out=out)

    return ChunkedPlan(chunk, apply)


def keeps_reflections(operator: np.ndarray, points: np.ndarray, subdomain: Subdomain) -> bool:
    """Say whether an operator ``(Q, P)`` of nodes commutes with reflections in all axes, but for rounding."""
    m, nodes = subdomain.cells, np.rint(points).astype(int)
    g = np.random.default_rng(0).standard_normal((operator.shape[1], _PROBES))
    values = operator @ g
    for axis in range(subdomain.axes):
        turned = []
        for places in (nodes, subdomain.perimeter):
            reflected = places.copy()
            reflected[:, axis] = m - reflected[:, axis]
            turned.append(_numbers(reflected, places, m))
        if not np.array_equal(nodes, points) or min(map(np.min, turned)) < 0:
            return False
        change = operator @ g[turned[1]] - values[turned[0]]
        if np.abs(change).max() > _ASYMMETRY * np.abs(values).max():
            return False
    return True


def _representatives(nodes: np.ndarray, m: int) -> np.ndarray:
    """Return the nodes with coordinates of at most ``m / 2``, sorted by the axes that they bisect."""
    low = np.unique(nodes[(2 * nodes <= m).all(axis=1)], axis=0)
    return low[np.lexsort((2 * low != m).T[::-1])]


def _numbers(nodes: np.ndarray, among: np.ndarray, m: int) -> np.ndarray:
    """Return the index of nodes ``(.., axes)`` among others, ``(..)``; -1 where there is none."""
    axes = among.shape[1]
    number = np.full((m + 1,) * axes, -1)
    number[tuple(among.T)] = np.arange(len(among))
    return number[tuple(np.moveaxis(nodes, -1, 0))]


def linear_plan(
    operator: np.ndarray,
    points: np.ndarray,
    subdomain: Subdomain,
    *,
    weights: np.ndarray | None = None,
    **tensors: Unpack[Tensors],
) -> Plan:
    """Plan a linear local solver. Its symmetry saves half of the products where it has one, of cubes seven eighths.

    The operator ``(Q, P)`` is of query points ``(Q, 2)``, (y, x) in cells; ``weights (Q,)`` are
    factors for the values.
    """
    operator = np.asarray(operator)
    if weights is not None:
        operator = np.asarray(weights)[:, None] * operator
    dtype, on_cpu = tensors["dtype"], torch.device(tensors["device"]).type == "cpu"
    lines = reversed_lines(points, subdomain)
    if on_cpu and lines and _is_kept(operator, lines):
        return _reflection_plan(operator, lines, dtype)
    if on_cpu and subdomain.axes > 2 and keeps_reflections(operator, points, subdomain):
        return _parity_plan(operator, np.rint(points).astype(int), subdomain, dtype)
    columns = torch.as_tensor(np.ascontiguousarray(operator.T)).to(**tensors)  # (P, Q)

    def whole_product(g: torch.Tensor, out: torch.Tensor) -> None:
        torch.mm(g, columns, out=out)

    return whole_product


def _is_kept(operator: np.ndarray, lines: int) -> bool:
    """Say whether the reflection through the centre changes an operator by rounding only."""
    points, perimeter = operator.shape
    reflected = operator.reshape(lines, -1, perimeter)[:, ::-1].reshape(points, perimeter)
    reflected = np.roll(reflected, perimeter // 2, axis=1)
    return bool(np.abs(reflected - operator).max() <= _ASYMMETRY * np.abs(operator).max())


# Ratio of a diagonal tensor. At 512 x 512 cells, to 1e-7, with interpolation as coarse space and by multigrid:
# 27 iterations and 25 at 100, 72 and 31 at 1000, 100 and 33 at 3000.
_ANISOTROPY = 100.0


class Exact:
    """The exact solver of any equation: by subdomains, transforms, multigrid or Newton's method.

    Parameters
    ----------
    cells
        Per side of a subdomain, in space half as many.
    shared
        Whether constant coefficients are solved by one operator for all subdomains, where these fit the domain.
    """

    name = "exact"
    spacing = None
    axes = (2, 3)

    def __init__(self, cells: int = 32, *, shared: bool = True):
        self.cells, self._shared = cells, shared

    def bind(self, problem: Problem, grid: Grid) -> Method:
        """Return the solver of a problem on a grid."""
        cells = self.cells if len(grid.shape) == 2 else self.cells // 2
        operator: Any = problem.operator  # with constant coefficients an `EllipticOperator`
        subdomain = Subdomain(cells, cells * grid.spacing, len(grid.shape))
        alike = operator.constant and not _strongly_anisotropic(operator)
        if not (alike and self._shared and problem.plain and fits(grid, subdomain)):
            return system_of(problem, grid)
        source = None if problem.source is None else Source(problem, grid, subdomain)
        return ExactSolver(operator, subdomain, source)


class ExactSolver(SharedSolver):
    """Solve the discrete equation on a subdomain to rounding.

    The honest baseline: it makes the Schwarz iteration reproduce the global discrete solution.
    """

    name = "exact"
    exact = True

    def __init__(
        self, operator: EllipticOperator, subdomain: Subdomain, source: Source | None = None
    ):
        self.operator, self.subdomain, self.source = operator, subdomain, source

    @property
    def matrix(self) -> np.ndarray:
        """The solution operator at all nodes, ``(m + 1, m + 1, P)``: values for unit perimeter values.

        Cubes have an axis more.
        """
        return _matrix(self.operator, self.subdomain)

    def plan(
        self, points: np.ndarray, *, weights: np.ndarray | None = None, **tensors: Unpack[Tensors]
    ) -> Plan:
        """Prepare the solve for grid nodes ``points``, ``(Q, 2)`` or ``(Q, 3)`` integers in cells."""
        nodes = np.asarray(points).astype(int)
        m = self.subdomain.cells
        if not np.array_equal(nodes, points) or nodes.min() < 0 or nodes.max() > m:
            raise ValueError(f"the exact local solver knows grid nodes 0..{m} only")
        rows = self.matrix[tuple(nodes.T)]
        return linear_plan(rows, points, self.subdomain, weights=weights, **tensors)


def _strongly_anisotropic(operator: EllipticOperator) -> bool:
    """Return whether multigrid, with aggregates along the strong direction, is worth its set-up."""
    ratio = max(operator.axx, operator.ayy) / min(operator.axx, operator.ayy)
    return ratio > _ANISOTROPY and operator.axy == 0.0 and operator.c >= 0.0


@lru_cache(maxsize=4)
def _matrix(operator: EllipticOperator, subdomain: Subdomain) -> np.ndarray:
    """Factorise and solve, once per process: every solve estimates its error by the exact solver."""
    perimeter = subdomain.perimeter
    columns = np.arange(len(perimeter))
    system = DirichletSystem(operator, Grid(subdomain.shape, subdomain.spacing))
    nodes = np.zeros((*system.grid.nodes, len(perimeter)))
    nodes[(*perimeter.T, columns)] = 1.0
    inside = nodes[(slice(1, -1),) * subdomain.axes]
    if subdomain.axes == 2:
        inside[...] = system.solve(system.right_hand_side(nodes)).reshape(inside.shape)
    else:  # the nodes of a face have one neighbour inside, those of an edge none
        beside = perimeter.clip(1, subdomain.cells - 1)
        faced = np.abs(perimeter - beside).sum(axis=1) == 1
        inside[(*(beside[faced] - 1).T, columns[faced])] = -system.stencil.min()
        solution = system.solve_by_sines(inside.reshape(-1, len(perimeter)))
        inside[...] = solution.reshape(inside.shape)
    nodes.flags.writeable = False
    return nodes
