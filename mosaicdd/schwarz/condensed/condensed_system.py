"""Everything that is planned once for a medium on the block of a rank: ``S`` and its preconditioner."""

import math
from functools import cached_property

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.local_solvers.elements.condensed import NodeSource
from mosaicdd.local_solvers.elements.shared_elements import condensed
from mosaicdd.parallel.machine import memory_share
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.discretisation.discretisation import Discretisation
from mosaicdd.problems.discretisation.linear_step import LinearStep
from mosaicdd.problems.discretisation.node_equations import Equations
from mosaicdd.problems.discretisation.region_equations import region_equations
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.jacobian import NotEllipticError
from mosaicdd.problems.operators.medium import Medium, Resampled
from mosaicdd.problems.operators.nonlinear_part import Linearised
from mosaicdd.schwarz.condensed.balanced_coarse import BalancedCoarse
from mosaicdd.schwarz.condensed.edge_modes import cut_lines
from mosaicdd.schwarz.condensed.interface_operator import InterfaceOperator, region_interior
from mosaicdd.schwarz.condensed.stars import Stars
from mosaicdd.schwarz.measure import Measure, require_range, require_ratio
from mosaicdd.schwarz.stopwatch import Stopwatch

# Bytes per node where elements keep what is left of their inner nodes; benchmarks/fields.md has them.
_WITH_FACTORS = 250
_LEAST = 1e-3  # of the conductances of a lattice edge, by the largest, where cells are crossed
# Of the numbers of `S`, whose squares times those of small values are added up.
_RANGE = 1e-140, 1e140
# Between them, above which what rounding makes of a small one is measured whatever the residual is.
_STEEP = 1e9
_MOST = 0.5  # of the memory there for that; beyond, they do not keep it


class CondensedSystem:
    """The condensed elements of a block's region, and what the Krylov iterations need of them.

    Parameters
    ----------
    block
        With a halo of one lattice cell.

    Attributes
    ----------
    conductances
        Between the nodes of the region.
    equations
        At the nodes of the region, where the edge of the grid is not that of the lattice; else None.
    unknowns
        Of the whole domain on lattice lines.
    inside
        ``(L,)``, 1 at the interface nodes inside the region, 0 on its edge and at the copies of lattice nodes.
    diagonal
        ``(L,)``, of ``S``; zero on the region's edge.
    signs
        ``(L,)``, +1 or -1 as if at random, a node's the same on all ranks; 0 at nodes without an unknown.
    active
        ``(L,)``, 1 at the active nodes.
    measure
        Of right-hand sides.
    counts
        ``(L,)``, the squares of what rows count in norms; None if all do fully.
    elements, operator, stars, coarse
        See their classes.
    steep
        Whether rounding may hide errors that no residual shows, for the contrast.
    used
        Whether anything was solved with it.

    Raises
    ------
    ValueError
        On all ranks, if the coefficients are not sound, or not positive to rounding.
    """

    def __init__(
        self,
        ranks: Ranks,
        block: Block,
        medium: Medium | Linearised | LinearStep,
        discretisation: Discretisation | LinearStep | None,
        clock: Stopwatch,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self._block, self.used, self.steep = block, False, False
        self.equations: Equations | None = None
        self.inside = torch.from_numpy(region_interior(block)).to(device=device, dtype=dtype)
        self.signs = torch.from_numpy(_signs(block)).to(device)
        keep = memory_share(ranks, _WITH_FACTORS * math.prod(block.cells), device) <= _MOST
        lines = [
            *ranks.agree(lambda: self._condense(block, medium, discretisation, clock, keep=keep))
        ]
        self.steep = ranks.any(self.steep)
        self.unknowns = block.lattice.unknowns
        if self.equations is not None:
            self.signs *= self.active
            owned = Interface(block, device=device, dtype=dtype).ownership().flat
            here = float((owned * self.active).sum())
            self.unknowns = int(ranks.sum(np.array([here]))[0])
            if not self.unknowns:
                raise ValueError(
                    "the values of all nodes are given, or there are none inside the domain; take "
                    "2 cells or more per axis"
                )
        with clock.part("coarse"):
            cut, nodes = self._cut(block.lattice.spacing, lines[0])
            self.coarse = BalancedCoarse(
                ranks,
                block,
                self.operator,
                self.elements.schur,
                lines.pop(0),  # which are not needed any more
                lines.pop(0),
                cut=cut,
                nodes=nodes,
                keep=keep,
            )

    def right_hand_side(
        self, source: NodeSource, b: Interface, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return sources on the lines with what those inside the elements add to them, ``(n, L)``.

        Parameters
        ----------
        b
            Of zeros, for work.
        """
        values, scale, s = source.values, source.scale, self._block.lattice.spacing
        self.elements.add_loads(b.lines, source)
        b.lines[0].add_(values[:, ::s], alpha=scale)
        b.lines[1].add_(values[:, :, ::s].mT, alpha=scale)
        return torch.mul(b.flat.view(len(values), -1), self.inside, out=out)

    @cached_property
    def leaks(self) -> torch.Tensor:
        """``(L,)``: by how much rows of ``S`` add up wrongly, from the rounding of the elimination.

        A constant's image is known, as the operator of the grid makes the reaction of it.
        """
        sums = self.operator(self.active[None].to(self.inside))
        if self._reacts:
            nodes = tuple(slice(0, cells + 1) for cells in self._block.cells)
            reaction = np.array(self.conductances.part(*nodes).reaction)
            if self.equations is not None:
                reaction *= self.equations.active
            b = Interface(self._block, device=sums.device, dtype=sums.dtype)
            sums -= self.right_hand_side(NodeSource(torch.from_numpy(reaction)[None].to(sums)), b)
        return sums[0]

    def _condense(
        self,
        block: Block,
        medium: Medium | Linearised | LinearStep,
        discretisation: Discretisation | LinearStep | None,
        clock: Stopwatch,
        *,
        keep: bool,
    ) -> tuple[list, ...]:
        """Do what needs no other rank; return conductances and diagonals along the lines."""
        grid, s = block.lattice.grid, block.lattice.spacing
        low = [first - (not block.at_edge(axis)[0]) for axis, first in enumerate(block.origin)]
        ends = enumerate(zip(block.origin, block.cells, strict=True))
        high = [first + cells + 1 + (not block.at_edge(axis)[1]) for axis, (first, cells) in ends]
        part = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
        with clock.part("sample"):
            if discretisation is None:
                wide = medium.conductances(grid, part)
            else:
                everywhere = region_equations(discretisation, part)
                wide = everywhere.conductances
        own = tuple(
            slice(first - a, first - a + cells + 1)
            for first, a, cells in zip(block.origin, low, block.cells, strict=True)
        )
        conductances, again = wide.part(*own), None
        self._reacts = bool(np.asarray(conductances.reaction).any())
        if isinstance(medium, Medium) and discretisation is None:
            region = zip(block.origin, block.cells, strict=True)
            again = Resampled(medium, grid, tuple(slice(a, a + n + 1) for a, n in region))
        self.conductances = again or conductances
        self.active = torch.ones_like(self.signs)
        if discretisation is not None:
            self.equations = everywhere.part(*own)
            self.active = _on_lines(self.equations.active, block).to(self.signs)
        self._weigh(conductances)
        lines = _along_lines(conductances, s), _diagonals_along_lines(wide, own, s)
        try:
            with clock.part("condense"):
                self.elements = condensed(
                    conductances,
                    s,
                    keep=keep,
                    again=again,
                    device=self.inside.device,
                    dtype=self.inside.dtype,
                )
            self.operator = InterfaceOperator(block, self.elements, self.inside)
            self.diagonal = self.operator.diagonal()
            with clock.part("stars"):
                largest = self._require_range()
                self.stars = Stars(block, self.elements, largest)
        except torch.linalg.LinAlgError as error:
            every = wide.along
            raise NotEllipticError(
                "the coefficients are not positive definite to rounding; their contrast must stay "
                f"below some 1e12, here conductances are {min(map(np.min, every)):g} to "
                f"{max(map(np.max, every)):g}"
            ) from error
        return tuple(
            [torch.from_numpy(values).to(self.inside) for values in part] for part in lines
        )

    def _require_range(self) -> float:
        """Check that float64 holds the squares of the numbers of ``S``, and float32 their ratios; return the largest."""
        numbers = self.diagonal[(self.diagonal > 0) & (self.active > 0)]
        if not len(numbers):
            return 0.0
        least, largest = float(numbers.min()), float(numbers.max())
        require_range(largest)
        self.steep = largest > _STEEP * least
        require_ratio(least, largest)
        return largest

    def _weigh(self, conductances: Conductances) -> None:
        """Find what rows count."""
        active = None if self.equations is None else self.equations.active
        self.measure, self.counts = Measure(self._block, conductances, active), None
        if len(self.measure.weights.nodes):
            every = self.measure.weights.every(conductances.reaction.shape)
            self.counts = _on_lines(every, self._block).to(self.inside).square_()

    def _cut(self, s: int, conductances: list) -> tuple:
        """Return what the outline makes of the region's lines, and which lattice nodes are active."""
        if self.equations is None:
            return (None, None), None
        active, reaction = self.equations.active, self.equations.conductances.reaction
        nodes = torch.from_numpy(active[::s, ::s].copy()).to(self.inside.device)
        reactions, actives = (
            [_between(lines, s) for lines in (array[::s], array[:, ::s].T)]
            for array in (reaction, active)
        )
        parts = zip(conductances, reactions, actives, strict=True)
        return tuple(
            cut_lines(
                k, torch.from_numpy(c).to(self.inside), torch.from_numpy(there).to(nodes.device)
            )
            for k, c, there in parts
        ), nodes


def _on_lines(nodes: np.ndarray, block: Block) -> torch.Tensor:
    """Return what nodes of a region have on its lines, ``(L,)``."""
    s = block.lattice.spacing
    return torch.cat([torch.from_numpy(values.ravel()) for values in (nodes[::s], nodes[:, ::s].T)])


def _diagonals_along_lines(wide: Conductances, own: Slices, s: int) -> list[np.ndarray]:
    """Return the diagonal between the lattice nodes of a region, per axis ``(lines, cells, s - 1)``."""
    diagonals = []
    for conductances, (across, along) in ((wide, own), (wide.transposed(), own[::-1])):
        values = conductances.diagonal_of_rows(np.arange(across.start, across.stop, s))
        diagonals.append(_between(values[:, along], s))
    return diagonals


def _along_lines(conductances: Conductances, s: int) -> list[np.ndarray]:
    """Return conductances per axis, ``(lines, cells, s)``.

    Where an edge has two conductances, their geometric mean: that is the one-dimensional operator
    between scaled values, which is symmetric. Beside conductances across cells one along an edge may be
    negative; the coarse space takes small ones there.
    """
    along, against = (
        (right[::s], up[:, ::s].T) for up, right in (conductances.along, conductances.against)
    )
    if not conductances.symmetric:
        with np.errstate(over="ignore"):  # of numbers that `require_range` refuses
            along = tuple(np.sqrt(k * other) for k, other in zip(along, against, strict=True))
    edges = [np.ascontiguousarray(k).reshape(len(k), -1, s) for k in along]
    if conductances.across is not None:
        edges = [np.maximum(k, _LEAST * abs(k).max(axis=-1, keepdims=True)) for k in edges]
    return edges


def _signs(block: Block) -> np.ndarray:
    """Return a sign for each interface node by its place in the domain, scrambled, ``(L,)``."""
    s, parts = block.lattice.spacing, []
    sizes = [
        k * s + first
        for k, first in zip(block.lattice.cells, block.lattice.first_centre, strict=True)
    ]
    for axis in (0, 1):
        lines, along = block.line_shape(axis)
        line, node = (
            ((s * first + step * np.arange(count)) % size).astype(np.uint32)
            for first, step, count, size in (
                (block.first[axis], s, lines, sizes[axis]),
                (block.first[1 - axis], 1, along, sizes[1 - axis]),
            )
        )
        y, x = (line[:, None], node) if axis == 0 else (node, line[:, None])
        mixed = y * np.uint32(0x9E3779B1) + x * np.uint32(0x85EBCA77)  # modulo 2^32
        mixed ^= mixed >> 15
        mixed *= np.uint32(0x2C1B3C6D)
        parts.append((2 * (mixed >> 16 & 1).astype(np.int8) - 1).ravel())
    return np.concatenate(parts)


def _between(lines: np.ndarray, s: int) -> np.ndarray:
    """Return what is between lattice nodes of values at the nodes of lines, ``(lines, cells, s - 1)``."""
    cells = np.ascontiguousarray(lines[:, :-1]).reshape(len(lines), -1, s)
    return np.ascontiguousarray(cells[..., 1:])
