"""The interface operator ``S`` of a medium, and its one-level preconditioner, on the block of a rank.

``S`` is the sum of the condensed elements: the discrete equation with all nodes inside the elements
eliminated. For values ``v`` on the lattice lines, ``b - S v`` is the residual of the whole grid, as
inside the elements there is none.

A rank condenses the elements of its region, those around its own subdomains. So from values that are
complete in the region it computes ``S v`` at all nodes of its subdomains' stars, which is where their
blocks of ``S`` act, without any message. One exchange follows these: ranks then add up what their stars
contributed. Vectors are flat interfaces ``(n, L)``, see `parts`; of lattice nodes the copy in the lines
constant in y counts, the other is anything.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.elements import (
    QUARTERS,
    element_places,
    quarter_numbers,
    star_parts,
    star_places,
)
from mosaicdd.local_solvers.complements import one_times
from mosaicdd.local_solvers.condensed import CondensedElements
from mosaicdd.local_solvers.kinds import Kinds, Piece, combined
from mosaicdd.local_solvers.shared_elements import SharedElements
from mosaicdd.schwarz.condensed.parts import Parts, rows_times, values_at

_PRECISION = torch.float32  # of the preconditioner
_STARS = {"cpu": 128, "cuda": 8192}  # that are factorised at once: few, for the cache


class InterfaceOperator:
    """``S`` at the nodes inside the region of a block.

    Parameters
    ----------
    elements
        Of the region.
    inside
        ``(L,)``, 1 at the interface nodes inside the region, 0 on its edge.

    Attributes
    ----------
    places
        Of the elements' perimeters in the interface, ``(E, 4 s)``.
    size
        ``L``.
    """

    def __init__(
        self, block: Block, elements: CondensedElements | SharedElements, inside: torch.Tensor
    ):
        self._inside, self._schur = inside, elements.schur
        self._edge = (inside == 0).nonzero().flatten()
        kinds = elements.schur.kinds
        self._order = torch.from_numpy(kinds.order).to(inside.device)
        self.places = torch.from_numpy(element_places(block)).to(inside.device)
        self.size = len(inside)
        self._parts = Parts(kinds, self.places, self.size)

    def __call__(self, v: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return ``S v``; ``v`` must be complete in the region."""
        total = torch.empty_like(v) if out is None else out
        self._parts.add(total, lambda piece, at: self._schur(piece, values_at(v, at)))
        total.T.index_fill_(0, self._edge, 0.0)
        return total

    def diagonal(self) -> torch.Tensor:
        """Return the diagonal of ``S``, ``(L,)``; zero on the region's edge."""
        total, diagonals = torch.empty_like(self._inside)[None], self._schur.diagonal()
        self._parts.add(total, lambda part, _: diagonals[self._order[part.members], None])
        return total[0].index_fill_(0, self._edge, 0.0)


class Stars:
    """The inverses of the blocks of ``S`` that belong to the stars of the owned subdomains.

    A star is two arms along x and the line along y. No element has both arms, so these are not coupled.
    With ``X`` the blocks of the arms and ``Y`` that of the line, eliminating the arms first makes::

        | X  B |            | F      0 |   with  X^-1 = G F,  T^-1 = (Y - C X^-1 B)^-1 = g f,
        |      |^-1  =  Q^T |          |         P = f [-C X^-1, 1],  Q = g^T [-(X^-1 B)^T, 1]
        | C  Y |            |     P    |

    where the first column of ``Q^T`` is ``[G; 0]``, the second ``Q`` transposed. Without a velocity ``f`` and
    ``F`` are inverses of Cholesky factors, ``Q = P`` and ``G = F^T``. All are kept in float32, which is
    enough whatever the contrast: the error of a factor is relative to the energy of the correction.

    Raises
    ------
    RuntimeError
        If a block is not positive definite to rounding.
    """

    def __init__(self, block: Block, elements: CondensedElements | SharedElements):
        schur, device = elements.schur, elements.device
        size = sum(math.prod(block.line_shape(axis)) for axis in (0, 1))
        quarters = quarter_numbers(block)
        kinds = Kinds(combined(*schur.kinds.keys[quarters].T))
        idle = schur.kinds.idle
        kinds.leave_out(lambda star: idle.issuperset(schur.kinds.operator[quarters[star]].tolist()))
        self._parts = Parts(kinds, torch.from_numpy(star_places(block)).to(device), size)
        self._given = self._sums = torch.empty(0, device=device, dtype=_PRECISION)
        nodes = [torch.from_numpy(one).to(device) for one in star_parts(block.lattice.spacing)]
        count, width = kinds.operators, len(nodes[0])
        self._down = self._up = _room(count, width, device)
        if not schur.symmetric:
            self._up = _room(count, width, device)
        for examples, numbers, like in kinds.made(_STARS[device.type]):
            of = torch.from_numpy(quarters[examples]).to(device)
            factors = _factors(
                [schur.among(some, at) for some, at in zip(of.unbind(1), nodes, strict=True)],
                symmetric=schur.symmetric,
            )
            for kept, made in zip((self._down, self._up), factors, strict=False):
                for whole, piece in zip(kept, made, strict=True):
                    whole[numbers] = piece[like].to(_PRECISION)
        common, units = len(kinds.shared), torch.eye(2 * width - 1)
        units = units.to(device, _PRECISION).expand(common, -1, -1)
        self._whole = self._solved(slice(0, common), units)

    def __call__(self, r: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the stars' contributions to ``(n, L)`` for residuals; neighbours' are to be added."""
        if self._given.shape != r.shape:
            self._given, self._sums = (torch.empty_like(r, dtype=_PRECISION) for _ in range(2))
        given = self._given.copy_(r)
        z = self._parts.add(
            self._sums, lambda piece, at: self._corrections(piece, values_at(given, at))
        )
        return z.to(r.dtype) if out is None else out.copy_(z)

    def _corrections(self, piece: Piece, given: torch.Tensor) -> torch.Tensor:
        """Return the products of a piece of the inverses with vectors ``(.., n, nodes)``."""
        if piece.shared:
            return one_times(self._whole[piece.operators.start].mT, given)
        return self._solved(piece.operators, given)

    def _solved(self, numbers: slice, given: torch.Tensor) -> torch.Tensor:
        """Return the products of some inverses with vectors ``(.., n, nodes)``, which are rows."""
        (down, rest), (up, other) = ([x[numbers] for x in y] for y in (self._down, self._up))
        both = down.shape[1:3]
        arms = given[..., : 2 * both[1]].unflatten(2, both).transpose(1, 2).mT.flatten(0, 1).mT
        arms = rows_times(rows_times(arms, down.flatten(0, 1).mT), up.flatten(0, 1))
        solved = rows_times(rows_times(given, rest.mT), other)
        inner = solved[..., : 2 * both[1]].unflatten(2, both).transpose(1, 2)
        inner += arms.unflatten(0, (-1, 2))
        return solved


def _room(count: int, width: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return room for ``F`` or ``G^T`` of both arms, ``(B, 2, a, a)``, and ``P`` or ``Q``."""
    new = functools.partial(torch.empty, device=device, dtype=_PRECISION)
    return new(count, 2, width // 2, width // 2), new(count, width, 2 * width - 1)


def _factors(
    quarters: Sequence[torch.Tensor], *, symmetric: bool
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return ``F`` and ``P`` of some stars, and ``G^T`` and ``Q`` unless they are the same.

    Parameters
    ----------
    quarters
        The parts of the star's four elements, ``(B, a + a + 1, ..)``, see `star_parts`.
    """
    count, width, _ = quarters[0].shape
    arm = width // 2
    new = quarters[0].new_zeros
    x, y = new(count, 2, arm, arm), new(count, width, width)
    b, c = new(count, 2, arm, width), new(count, 2, width, arm)
    for (dy, dx), part in zip(QUARTERS, quarters, strict=True):
        half = slice(0, arm + 1) if dy < 0 else slice(arm, width)
        x[:, 1 + dx] += part[:, :arm, :arm]
        y[:, half, half] += part[:, arm:, arm:]
        b[:, 1 + dx, :, half] += part[:, :arm, arm:]
        c[:, 1 + dx, half] += part[:, arm:, :arm]
    first = _roots(x.flatten(0, 1), symmetric=symmetric)  # F, G^T
    couplings = [torch.bmm(c.flatten(0, 1), first[-1].mT)]  # C G
    if not symmetric:
        couplings.append(torch.bmm(first[0], b.flatten(0, 1)).mT)  # (F B)^T
    product = torch.bmm(couplings[0], couplings[-1].mT)
    second = _roots(y - product.unflatten(0, (count, 2)).sum(1), symmetric=symmetric)  # f, g^T
    factors = []
    for arms, line, coupling in zip(first, second, couplings, strict=True):
        beside = torch.bmm(coupling, arms).unflatten(0, (count, 2)).transpose(1, 2).flatten(2)
        rest = torch.cat([torch.bmm(line, beside).neg_(), line], dim=2)
        factors.append((arms.unflatten(0, (count, 2)), rest))
    return factors


def _roots(blocks: torch.Tensor, *, symmetric: bool) -> list[torch.Tensor]:
    """Return ``f`` and ``g^T`` with ``A^-1 = g f``; where ``g^T`` is ``f``, this alone."""
    unit = torch.eye(blocks.shape[1]).to(blocks).expand_as(blocks)
    if not symmetric:
        return [torch.linalg.inv(blocks), unit]
    factor = torch.linalg.cholesky(blocks)
    return [torch.linalg.solve_triangular(factor, unit, upper=False)]


def region_interior(block: Block) -> np.ndarray:
    """Return ones at the interface nodes inside a block's region, zeros on its edge, ``(L,)``."""
    parts = []
    for axis in (0, 1):
        part = np.zeros(block.line_shape(axis))
        part[1:-1, 1:-1] = 1.0
        parts.append(part.ravel())
    return np.concatenate(parts)
