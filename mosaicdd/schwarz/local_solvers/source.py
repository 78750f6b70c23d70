"""The part of a source ``f`` in a local solution, ``w = A^-1 f`` with zero perimeter values.

It does not depend on the iteration, so it is computed once per subdomain, by the exact discrete
operator: one product with a small matrix, which no network could undercut; or, at all nodes inside, where
sines are eigenvectors, two products with the small matrix of these along each axis. A block's part of ``f`` is
sampled by the rank that needs it; nobody holds the whole.

Shape letters: ``B`` subdomains, ``Q`` query points, ``n`` problems, ``I = (m - 1)**2`` inner
nodes, in space ``(m - 1)**3``.
"""

import math
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Unpack

import numpy as np
import scipy.sparse.linalg
import torch

from mosaicdd.axes import Slices
from mosaicdd.discretisation.discrete import DirichletSystem
from mosaicdd.discretisation.system import GridSource
from mosaicdd.grid.grid import Grid
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.block import Block
from mosaicdd.schwarz.transfer import Batch, batch_shape, batches
from mosaicdd.tensors import Tensors

_BATCH = 512  # subdomains whose sources are copied at a time


class Source(GridSource):
    """The source of a problem, cut into subdomains.

    Parameters
    ----------
    problem, grid
        As those of a `GridSource`.
    subdomain
        The square that it is cut into.
    """

    def __init__(self, problem: Problem, grid: Grid, subdomain: Subdomain):
        super().__init__(problem, grid)
        self.subdomain = subdomain
        self._factors = np.ones(1)
        self._kept: weakref.WeakValueDictionary[Hashable, BlockSource] = (
            weakref.WeakValueDictionary()
        )

    def multiply(self, factors: np.ndarray) -> None:
        """Let ``f`` of each problem be multiplied from now on, ``(n,)``."""
        factors = factors if (factors != factors[0]).any() else factors[:1]
        if not np.array_equal(factors, self._factors):
            self._factors = factors
            self.version += 1

    def at(self, part: Slices) -> np.ndarray | None:
        """Return ``f`` at the nodes of a part of the grid, ``(n or 1, rows, columns)``; None if it is zero."""
        values = self.problem.source_at(self.grid, part)
        if values is None or (self._factors == 1.0).all():
            return values
        return values * self._factors.reshape(-1, *[1] * len(part))

    def on(self, block: Block, **tensors: Unpack[Tensors]) -> torch.Tensor:
        """Sample ``f`` at the nodes of a block's region: ``(n or 1, rows, columns)``."""
        values = self.at(block.nodes)
        if values is None:
            values = np.zeros((1, *(p.stop - p.start for p in block.nodes)))
        return torch.as_tensor(values).to(**tensors)

    def kept(
        self,
        block: Block,
        points: np.ndarray,
        *,
        weights: np.ndarray | None = None,
        **tensors: Unpack[Tensors],
    ) -> "BlockSource":
        """Return a `BlockSource`, shared by all who ask for the same one while any of them holds it.

        A network and the exact local solver that estimates its error hold one of them.
        """
        by_weights = None if weights is None else np.asarray(weights).tobytes()
        place = str(tensors["device"]), str(tensors["dtype"])
        key = block, np.asarray(points).tobytes(), by_weights, *place
        shared = self._kept.get(key)
        if shared is None:
            shared = BlockSource(self, block, points, weights=weights, kept=True, **tensors)
            self._kept[key] = shared
        return shared


class BlockSource:
    """``w`` at fixed query points in the subdomains of a block.

    Parameters
    ----------
    points
        Nodes inside a subdomain, ``(Q, 2)`` integers.
    weights
        ``(Q,)`` factors, as of a partition of unity.
    kept
        Whether ``w`` of all subdomains is kept from its first use on, ``Q`` values each: for points
        that are asked for in every iteration.
    """

    def __init__(
        self,
        source: Source,
        block: Block,
        points: np.ndarray,
        *,
        weights: np.ndarray | None = None,
        kept: bool = False,
        **tensors: Unpack[Tensors],
    ):
        m, self._tensors = source.subdomain.cells, tensors
        operator: Any = source.problem.operator  # with constant coefficients
        everywhere = len(points) == (m - 1) ** source.subdomain.axes and weights is None
        if everywhere and operator.reflective:
            self._solve = _by_sines(operator, source.subdomain, **self._tensors)
        else:
            self._solve = _by_rows(operator, source.subdomain, points, weights, **self._tensors)
        self._points = len(points)
        self._source = source
        self._block = block
        self._m, self._s = m, block.lattice.spacing
        self._kept = kept
        self._version: int | None = None
        self._patches: torch.Tensor | None = None
        self._values: torch.Tensor | None = None

    def add(self, batch: Batch, out: torch.Tensor) -> None:
        """Add ``w`` of a batch to values ``(B, Q)``, problem by problem."""
        if self._version != self._source.version:
            self._load()
        values = out.view(-1, *batch_shape(batch), out.shape[1])
        if self._values is not None:
            values += self._values[:, *batch]
        elif self._patches is not None:
            patches = self._patches[:, *batch]  # (n or 1, rows, columns, m - 1, m - 1)
            for i in range(values.shape[1]):  # a row of subdomains at a time
                self._solve(patches[:, i], values[:, i])

    def _load(self) -> None:
        """Sample the source, and solve for it where the results are kept."""
        f = self._source.on(self._block, **self._tensors)
        patches, axes = f, len(self._block.cells)
        for axis in range(1, 1 + axes):
            length = patches.shape[axis] - 1
            patches = patches.narrow(axis, 1, length).unfold(axis, self._m - 1, self._s)
        self._version = self._source.version
        self._patches, self._values = patches, None
        if not self._kept:
            return
        subdomains = patches.shape[1 : 1 + axes]
        values = torch.zeros(len(patches), *subdomains, self._points, **self._tensors)
        for batch in batches(tuple(slice(0, n) for n in subdomains), _BATCH):
            self.add(batch, values[:, *batch].reshape(-1, self._points))
        self._values, self._patches = values, None


# ``solve(f, out)``: adds ``w`` for sources ``(.., B, m - 1, m - 1)`` to values ``(.., B, Q)``.
_Solve = Callable[[torch.Tensor, torch.Tensor], None]


def _by_rows(
    operator: EllipticOperator,
    subdomain: Subdomain,
    points: np.ndarray,
    weights: np.ndarray | None,
    **tensors: Unpack[Tensors],
) -> _Solve:
    """Plan the product with the rows of ``A^-1`` of some points inside a subdomain."""
    system = DirichletSystem(operator, Grid(subdomain.shape, subdomain.spacing))
    inner = (subdomain.cells - 1,) * subdomain.axes
    columns = np.zeros((math.prod(inner), len(points)))
    rows = np.ravel_multi_index(tuple((points - 1).astype(int).T), inner)
    columns[rows, np.arange(len(points))] = subdomain.spacing**2
    if subdomain.axes > 2:  # a factorisation of a cube takes a hundred times as long
        columns = system.solve_by_sines(columns)
    else:
        factor = scipy.sparse.linalg.splu(system.matrix.T.tocsc())
        columns = np.ascontiguousarray(factor.solve(columns))
    if weights is not None:
        columns *= np.asarray(weights)
    matrix = torch.as_tensor(columns).to(**tensors)

    def solve(f: torch.Tensor, out: torch.Tensor) -> None:
        out += _product(f.flatten(out.dim() - 1), matrix)

    return solve


def _by_sines(
    operator: EllipticOperator, subdomain: Subdomain, **tensors: Unpack[Tensors]
) -> _Solve:
    """Plan ``A^-1`` at all nodes inside a subdomain, where sines are its eigenvectors."""
    m, spacing = subdomain.cells, subdomain.spacing
    angles = np.pi * np.arange(1, m) / m
    eigenvectors = np.sqrt(2 / m) * np.sin(np.arange(1, m)[:, None] * angles)
    eigenvalues = DirichletSystem(operator, Grid(subdomain.shape, spacing)).eigenvalues
    sines = torch.as_tensor(eigenvectors).to(**tensors)
    scale = torch.as_tensor(spacing**2 / eigenvalues).to(**tensors)

    def transformed(values: torch.Tensor) -> torch.Tensor:
        """Return the sine transform along the last axes, two or three."""
        values = _product(sines, _product(values, sines))
        if scale.dim() > 2:
            values = _product(sines, values.flatten(-2)).unflatten(-1, sines.shape)
        return values

    def solve(f: torch.Tensor, out: torch.Tensor) -> None:
        out += transformed(transformed(f).mul_(scale)).flatten(out.dim() - 1)

    return solve


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return a matrix product.

    On a processor it is numpy's, which takes two thirds of torch's time, for small ones half.
    """
    if left.device.type != "cpu":
        return torch.matmul(left, right)
    if right.dim() > 2:
        return torch.from_numpy(np.matmul(left.numpy(), right.numpy()))
    # Of many matrices numpy would make one product each.
    rows = left.reshape(-1, left.shape[-1]).numpy() @ right.numpy()
    return torch.from_numpy(rows).view(*left.shape[:-1], right.shape[-1])
