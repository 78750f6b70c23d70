"""The one-level preconditioner of a medium: inverses of the stars' blocks of ``S``, each edge counted once.

Every lattice edge between two stars lies in both, and both correct what is wrong there. So what an edge does
alone is taken off once (inclusion and exclusion)::

    M = sum_s R_s^T S_ss^-1 R_s - sum_e R_e^T S_ee^-1 R_e    stars s, edges e in two of them

With the coarse space, eigenvalues of ``M S`` lie between 0.98 and 1.02 in smooth media and between 0.6 and
1.4 in the roughest, where those of the first sum alone reach 2.8: half the iterations.

A star is two arms and a line across. No element has both arms, so these are not coupled.
With ``X`` the blocks of the arms and ``Y`` that of the line, eliminating the arms first makes::

    | X  B |        | X^-1  0 |
    |      |^-1  =  |         | + Q^T P  with  T^-1 = (Y - C X^-1 B)^-1 = g f,
    | C  Y |        |  0    0 |                P = f [-C X^-1, 1],  Q = g^T [-(X^-1 B)^T, 1]

``X^-1`` is what the arms do alone. The arms are along x and along y by turns, as the fields of a chessboard,
so each edge is an arm of one of its stars: ``M`` is the sum of ``Q^T P``, in which nothing is taken off any
more, and positive definite. What is left are edges of one star, that are arms there (`_LooseEdges`).

Without a velocity ``f`` is the inverse of a Cholesky factor, and ``Q = P``. All are kept in float32, which is
enough whatever the contrast: the error of a factor is relative to the energy of the correction. Its range is
not enough for all units of coefficients and sources, so both are scaled by powers of four, where need be.

Shape letters: ``B`` stars, ``a = s - 1`` nodes of an arm, ``2 a + 1`` of the line, ``n`` problems.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.elements import (
    QUARTERS,
    loose_edges,
    quarter_numbers,
    star_parts,
    star_places,
    star_shape,
    turned_stars,
)
from mosaicdd.local_solvers.elements.complements import Complements
from mosaicdd.local_solvers.elements.condensed import CondensedElements
from mosaicdd.local_solvers.elements.kinds import Kinds, Piece, combined
from mosaicdd.local_solvers.elements.products import products
from mosaicdd.local_solvers.elements.shared_elements import SharedElements
from mosaicdd.schwarz.condensed.parts import Parts, add_to, taken

_PRECISION = torch.float32
_STARS = {"cpu": 256, "cuda": 8192}  # that are factorised at once: few, for the cache
# The most that a diagonal of an inverse times that of the block may be for float32 to factorise in: the error
# is that times some 4e-6 of the identity, where both are scaled by the diagonals.
_CONTRAST = 1e3
# Powers of two that numbers may be about as large as without a scale: float32 has as much again six times.
_UNSCALED = 20
# Diagonals, over a scale: at most some 10, at least 1e-12 by the contrasts that are solved.
_OWN = 1e-30, 1e3


class Stars:
    """The preconditioner's part of the owned subdomains.

    Parameters
    ----------
    largest
        Of the numbers of ``S`` on the block, but for nodes without an unknown.

    Raises
    ------
    RuntimeError
        If a block is not positive definite to rounding.
    """

    def __init__(self, block: Block, elements: CondensedElements | SharedElements, largest: float):
        self._scale = float(_scales(np.array(largest)))
        schur, device, s = elements.schur, elements.device, block.lattice.spacing
        quarters, turned = quarter_numbers(block), turned_stars(block)
        kinds = Kinds(combined(turned.astype(int), *schur.kinds.keys[quarters].T))
        idle = schur.kinds.idle
        kinds.leave_out(lambda star: idle.issuperset(schur.kinds.operator[quarters[star]].tolist()))
        lines = [block.line_shape(axis) for axis in (0, 1)]
        places = torch.from_numpy(star_places(block)).to(device, torch.int32)
        shape = star_shape(block)
        self._parts = Parts(kinds, places, lines, shape, step=2)
        new = torch.empty(kinds.operators, 2 * s - 1, 4 * s - 3, device=device, dtype=_PRECISION)
        # P, and Q unless it is the same.
        self._factors = [new] if schur.symmetric else [new, torch.empty_like(new)]
        blocks = _Blocks(schur, self._scale)
        for numbers, made in _made(kinds, blocks, quarters, turned, s):
            for kept, factor in zip(self._factors, made, strict=True):
                kept[numbers] = factor.to(_PRECISION)
        self._loose = _LooseEdges(block, blocks, quarters, turned, places)

    def __call__(
        self, r: torch.Tensor, out: torch.Tensor, room: torch.Tensor, norms: np.ndarray
    ) -> torch.Tensor:
        """Write their contributions to ``(n, L)`` for residuals; neighbours' are to be added.

        Parameters
        ----------
        room
            As large, for work.
        norms
            What residuals are smaller than, but not by more than some 15 digits, ``(n,)``.
        """
        scales = _scales(norms)
        scaled, sums = (
            half.view(r.shape[::-1]).T for half in room.T.reshape(-1).view(_PRECISION).view(2, -1)
        )
        scaled = _over(scaled, r, scales)
        z = self._parts.add(sums, scaled, self._rows, self._columns, self._shared)
        self._loose.add(z, scaled)
        return _over(out, z, self._scale / scales)

    def _shared(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._factors[0][number].mT, self._factors[-1][number]

    def _rows(self, piece: Piece, values: torch.Tensor) -> torch.Tensor:
        """Return the products of a piece of the operators with vectors of one problem, ``(K, m, nodes)``."""
        down, up = (factor[piece.operators] for factor in (self._factors[0], self._factors[-1]))
        return products(products(values, down.mT), up)

    def _columns(self, piece: Piece, values: torch.Tensor, out: torch.Tensor) -> None:
        """Write those with vectors of several problems, ``(K, m, nodes, n)``."""
        down, up = (
            factor[piece.operators, None] for factor in (self._factors[0], self._factors[-1])
        )
        products(up.mT, products(down, values), out=out)


class _LooseEdges:
    """Lattice edges that are not just an arm of one of two stars: those that are an arm of their only one.

    Around a periodic axis of an odd number of lattice cells some are arms of both, or of none, and what these
    do is taken off here: that ``M`` is positive definite then, too, is seen in tests, not by its form.

    Parameters
    ----------
    quarters, turned, places
        Of the stars.
    """

    def __init__(
        self,
        block: Block,
        blocks: "_Blocks",
        quarters: np.ndarray,
        turned: np.ndarray,
        places: torch.Tensor,
    ):
        schur = blocks.schur
        stars, edges, times = loose_edges(block)
        arm, device = block.lattice.spacing - 1, schur.device
        # Of arms and halves of lines: the nodes among those of a star, and of its parts; the two quarters.
        among = [np.arange(arm) + first for first in (0, arm, 2 * arm, 3 * arm + 1)]
        within = [np.arange(arm) + first for first in (0, 0, arm, arm + 1)]
        beside = [
            [q for q, quarter in enumerate(QUARTERS) if quarter[1 - edge // 2] == edge % 2 - 1]
            for edge in range(4)
        ]
        self._places = torch.empty(len(stars), arm, dtype=places.dtype, device=device)
        self._down, self._up = (
            torch.empty(len(stars), arm, arm, dtype=_PRECISION, device=device) for _ in range(2)
        )
        for edge, way in np.ndindex(4, 2):
            those = np.flatnonzero((edges == edge) & (turned[stars] == way))
            if not len(those):
                continue
            self._places[those] = places[stars[those]][:, among[edge]]
            parts = star_parts(arm + 1, turned=bool(way))
            loose = torch.zeros(len(those), arm, arm, dtype=schur.dtype, device=device)
            for q in beside[edge]:
                each, which = np.unique(
                    schur.kinds.operator[quarters[stars[those], q]], return_inverse=True
                )
                operators, at, nodes = (
                    torch.from_numpy(numbers).to(device)
                    for numbers in (each, which, parts[q][within[edge]])
                )
                loose += blocks(operators, nodes, schur.dtype)[at]
            roots = _roots(loose, symmetric=schur.symmetric)
            signs = torch.from_numpy(times[those]).to(loose)[:, None, None]
            self._down[those] = (roots[0] * signs).to(_PRECISION)
            self._up[those] = roots[-1].to(_PRECISION)

    def add(self, total: torch.Tensor, r: torch.Tensor) -> None:
        """Add their corrections to ``(n, L)``."""
        if len(self._places):
            at, n = self._places, len(r)
            values = taken(r, at.flatten()).T.reshape(*at.shape, n)
            corrections = products(self._up.mT, products(self._down, values))
            add_to(total, at.flatten(), corrections.reshape(-1, n).T)


class _Blocks:
    """Parts of the elements' complements over a scale.

    Nodes without an unknown have an equation of their own that knows no scale: over one its number would be
    none of float32's. Any does.
    """

    def __init__(self, schur: Complements, scale: float):
        self.schur, self._scale = schur, scale

    def __call__(
        self, operators: torch.Tensor, nodes: torch.Tensor, dtype: torch.dtype
    ) -> torch.Tensor:
        """Return the entries of some operators between nodes, see `Complements.among`."""
        if self._scale == 1.0:
            return self.schur.among(operators, nodes, dtype)
        entries = self.schur.among(operators, nodes, self.schur.dtype).div_(self._scale)
        entries.diagonal(dim1=-2, dim2=-1).clamp_(*_OWN)
        return entries.to(dtype)


def _made(
    kinds: Kinds, blocks: _Blocks, quarters: np.ndarray, turned: np.ndarray, spacing: int
) -> Iterator[tuple[torch.Tensor, list[torch.Tensor]]]:
    """Factorise the blocks of all stars that differ: in float32 up to the first for which that is too little.

    Yields
    ------
    Tensor, list
        The numbers of some operators, their factors.
    """
    enough, schur = True, blocks.schur
    for way in (False, True):
        nodes = torch.from_numpy(np.stack(star_parts(spacing, turned=way))).to(schur.device)
        operators = np.flatnonzero(turned[kinds.examples] == way)
        for portion in even(len(operators), _STARS[schur.device.type]) if len(operators) else ():
            numbers = operators[portion]
            corners = functools.partial(_corners, blocks, quarters[kinds.examples[numbers]], nodes)
            if enough:
                try:
                    factors, contrast = _factorised(corners(_PRECISION), schur.symmetric)
                    enough = contrast < _CONTRAST
                except torch.linalg.LinAlgError:
                    enough = False
            if not enough:
                factors, _ = _factorised(corners(schur.dtype), schur.symmetric)
            yield torch.from_numpy(numbers).to(schur.device), factors


def _corners(
    blocks: _Blocks, quarters: np.ndarray, nodes: torch.Tensor, dtype: torch.dtype
) -> list[torch.Tensor]:
    """Return what each of the four elements around some stars has among the nodes of these.

    Parameters
    ----------
    quarters
        The numbers of the elements, ``(B, 4)``.
    nodes
        See `star_parts`, ``(4, a + a + 1)``.

    Returns
    -------
    list
        Of each of the four, ``(B, a + a + 1, ..)``.
    """
    schur = blocks.schur
    operators = torch.from_numpy(schur.kinds.operator[quarters]).to(schur.device)
    return [blocks(each, at, dtype) for each, at in zip(operators.unbind(1), nodes, strict=True)]


def _factorised(
    quarters: Sequence[torch.Tensor], symmetric: bool
) -> tuple[list[torch.Tensor], float]:
    """Return ``P`` of some stars, and ``Q`` unless it is the same; and the contrast in them.

    Parameters
    ----------
    quarters
        The parts of the star's four elements, ``(B, a + a + 1, ..)``, see `star_parts`.
    """
    count, width, _ = quarters[0].shape
    arm = width // 2
    new = quarters[0].new_zeros
    x, y = new(count, 2, arm, arm), new(count, width, width)
    # C^T and B, which are the same without a velocity.
    beside = [new(count, 2, arm, width) for _ in range(1 if symmetric else 2)]
    for (dy, dx), part in zip(QUARTERS, quarters, strict=True):
        half = slice(0, arm + 1) if dy < 0 else slice(arm, width)
        x[:, 1 + dx] += part[:, :arm, :arm]
        y[:, half, half] += part[:, arm:, arm:]
        beside[-1][:, 1 + dx, :, half] += part[:, :arm, arm:]
        if not symmetric:
            beside[0][:, 1 + dx, :, half] += part[:, arm:, :arm].mT
    diagonals = [matrix.diagonal(dim1=-2, dim2=-1).flatten(1) for matrix in (x, y)]
    first = _roots(x.flatten(0, 1), symmetric=symmetric)  # F and G^T with X^-1 = G F
    couplings = [  # (C G)^T, F B
        products(arms, arm_block.flatten(0, 1))
        for arms, arm_block in zip(reversed(first), beside, strict=True)
    ]
    both = [coupling.unflatten(0, (count, 2)).flatten(1, 2) for coupling in couplings]
    left = y - products(both[0].mT, both[-1])
    second = _roots(left, symmetric=symmetric)  # f, g^T
    factors = []
    for arms, line, coupling in zip(first, second, couplings, strict=True):
        rest = line.new_empty(count, width, 2 * arm + width)
        through = products(coupling.mT, arms).unflatten(0, (count, 2))  # C X^-1, (X^-1 B)^T
        through = through.transpose(1, 2).flatten(2)
        rest[..., : 2 * arm] = products(line, through).neg_()
        rest[..., 2 * arm :] = line
        factors.append(rest)
    inverse = (factors[0] * factors[-1]).sum(1)
    inverse[:, : 2 * arm] += (first[0] * first[-1]).sum(1).view(count, -1)
    return factors, float((inverse * torch.cat(diagonals, dim=1)).max())


def _roots(blocks: torch.Tensor, *, symmetric: bool) -> list[torch.Tensor]:
    """Return ``f`` and ``g^T`` with ``A^-1 = g f``; where ``g^T`` is ``f``, this alone."""
    unit = torch.eye(blocks.shape[1]).to(blocks).expand_as(blocks)
    if not symmetric:
        return [torch.linalg.inv(blocks), unit]
    factor = torch.linalg.cholesky(blocks)
    return [torch.linalg.solve_triangular(factor, unit, upper=False)]


def _scales(sizes: np.ndarray) -> np.ndarray:
    """Return powers of four about as large as numbers are; 1 where these need no scale, or are none.

    Their roots are exact, too, so that a factor's numbers are the same whatever the units.
    """
    _, exponents = np.frexp(sizes)
    far = (abs(exponents) > _UNSCALED) & np.isfinite(sizes)
    return np.ldexp(1.0, np.where(far, exponents // 2 * 2, 0))


def _over(out: torch.Tensor, values: torch.Tensor, scales: np.ndarray) -> torch.Tensor:
    """Write values ``(n, L)`` over scales ``(n,)``, as ``out`` keeps numbers."""
    if (scales == 1.0).all():
        return out.copy_(values)
    return out.copy_(values.double() / torch.from_numpy(scales).to(values.device)[:, None])
