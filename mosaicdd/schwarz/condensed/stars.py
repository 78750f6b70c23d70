"""The one-level preconditioner of a medium: the inverses of the stars' blocks of ``S``.

A star is two arms along x and the line along y. No element has both arms, so these are not coupled.
With ``X`` the blocks of the arms and ``Y`` that of the line, eliminating the arms first makes::

    | X  B |            | F      0 |   with  X^-1 = G F,  T^-1 = (Y - C X^-1 B)^-1 = g f,
    |      |^-1  =  Q^T |          |         P = f [-C X^-1, 1],  Q = g^T [-(X^-1 B)^T, 1]
    | C  Y |            |     P    |

where the first column of ``Q^T`` is ``[G; 0]``, the second ``Q`` transposed. Without a velocity ``f`` and
``F`` are inverses of Cholesky factors, ``Q = P`` and ``G = F^T``. All are kept in float32, which is
enough whatever the contrast: the error of a factor is relative to the energy of the correction.

Where stars share operators, their inverses themselves are kept, of which products are quicker by far; and
those of the other stars, too, but not with a contrast inside of them that would make these inexact.

Shape letters: ``B`` stars, ``a = s - 1`` nodes of an arm, ``2 a + 1`` of the line, ``n`` problems.
"""

import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.elements import QUARTERS, quarter_numbers, star_parts, star_places, star_shape
from mosaicdd.local_solvers.elements.complements import Complements
from mosaicdd.local_solvers.elements.condensed import CondensedElements
from mosaicdd.local_solvers.elements.kinds import Kinds, Piece, combined
from mosaicdd.local_solvers.elements.products import rows_times
from mosaicdd.local_solvers.elements.shared_elements import SharedElements
from mosaicdd.schwarz.condensed.parts import Parts

_PRECISION = torch.float32
_STARS = {"cpu": 128, "cuda": 8192}  # that are factorised at once: few, for the cache
# The most that a diagonal of an inverse times that of the block may be for float32 to hold the inverse: its
# error is that times some 4e-6 of the identity, where both are scaled by the diagonals.
_CONTRAST = 1e3

_Pair = tuple[torch.Tensor, torch.Tensor]
"""``F`` or ``G^T`` of both arms, ``(B, 2, a, a)``, and ``P`` or ``Q``, ``(B, 2 a + 1, 4 a + 1)``."""


class Stars:
    """The inverses of the blocks of ``S`` that belong to the stars of the owned subdomains.

    Raises
    ------
    RuntimeError
        If a block is not positive definite to rounding.
    """

    def __init__(self, block: Block, elements: CondensedElements | SharedElements):
        schur, device = elements.schur, elements.device
        quarters = quarter_numbers(block)
        kinds = Kinds(combined(*schur.kinds.keys[quarters].T))
        idle = schur.kinds.idle
        kinds.leave_out(lambda star: idle.issuperset(schur.kinds.operator[quarters[star]].tolist()))
        size = sum(math.prod(block.line_shape(axis)) for axis in (0, 1))
        places, shape = torch.from_numpy(star_places(block)).to(device), star_shape(block)
        self._parts = Parts(kinds, places, size, shape)
        self._given = self._sums = torch.empty(0, device=device, dtype=_PRECISION)
        new = functools.partial(
            _Factors, arm=block.lattice.spacing - 1, symmetric=schur.symmetric, device=device
        )
        made = _made(kinds, schur, quarters, block.lattice.spacing)
        if kinds.all_own:
            self._factors, self._whole = new(kinds.operators), torch.empty(0)
            for numbers, factors, _ in made:
                self._factors.put(numbers, factors)
            return
        every = list(made)
        whole = max(contrast for *_, contrast in every) < _CONTRAST
        self._factors, nodes = new(0 if whole else kinds.operators), 4 * block.lattice.spacing - 3
        count = kinds.operators if whole else len(kinds.shared)
        self._whole = torch.empty(count, nodes, nodes, device=device, dtype=_PRECISION)
        while every:  # of which not all are kept twice
            numbers, factors, _ = every.pop()
            if whole:
                self._whole[numbers] = _together(factors)
            else:
                self._factors.put(numbers, factors)
        if not whole:
            self._whole[:] = _together(self._factors.some(slice(0, count)))

    def __call__(self, r: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the stars' contributions to ``(n, L)`` for residuals; neighbours' are to be added."""
        if self._given.shape != r.shape:
            self._given, self._sums = (torch.empty_like(r, dtype=_PRECISION) for _ in range(2))
        given = self._given.copy_(r)
        z = self._parts.add(self._sums, given, self._corrections, lambda one: self._whole[one].mT)
        return z.to(r.dtype) if out is None else out.copy_(z)

    def _corrections(
        self, piece: Piece, given: torch.Tensor, out: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the products of a piece of the inverses with vectors of each, ``(K, r, nodes)``."""
        if piece.operators.start < len(self._whole):
            return rows_times(given, self._whole[piece.operators], out)
        return self._factors.solve(piece.operators, given)


class _Factors:
    """What is left of the blocks of some stars."""

    def __init__(self, count: int, arm: int, *, symmetric: bool, device: torch.device):
        new = functools.partial(torch.empty, device=device, dtype=_PRECISION)
        self._kept: list[_Pair] = [
            (new(count, 2, arm, arm), new(count, 2 * arm + 1, 4 * arm + 1))
            for _ in range(1 if symmetric else 2)
        ]

    def put(self, numbers: slice, factors: list[_Pair]) -> None:
        """Take those of some stars."""
        for kept, made in zip(self._kept, factors, strict=True):
            for whole, piece in zip(kept, made, strict=True):
                whole[numbers] = piece

    def some(self, numbers: slice) -> list[_Pair]:
        """Return those of some stars."""
        return [(arms[numbers], rest[numbers]) for arms, rest in self._kept]

    def solve(self, numbers: slice, given: torch.Tensor) -> torch.Tensor:
        """Return the products of some inverses with vectors ``(B, r, nodes)``, which are rows."""
        factors = self.some(numbers)
        (down, rest), (up, other) = factors[0], factors[-1]
        both = down.shape[1:3]
        arms = given[..., : 2 * both[1]].unflatten(2, both).transpose(1, 2).mT.flatten(0, 1).mT
        arms = rows_times(rows_times(arms, down.flatten(0, 1).mT), up.flatten(0, 1))
        solved = rows_times(rows_times(given, rest.mT), other)
        inner = solved[..., : 2 * both[1]].unflatten(2, both).transpose(1, 2)
        inner += arms.unflatten(0, (-1, 2))
        return solved


def _together(factors: list[_Pair]) -> torch.Tensor:
    """Return the inverses of the blocks of stars, by which rows are multiplied, ``(B, 4 a + 1, 4 a + 1)``."""
    (down, rest), (up, other) = factors[0], factors[-1]
    whole, arm = torch.bmm(rest.mT, other), down.shape[2]
    for number in (0, 1):
        own = slice(number * arm, (number + 1) * arm)
        whole[:, own, own] += torch.bmm(down[:, number].mT, up[:, number])
    return whole


def _inverse_diagonal(factors: list[_Pair]) -> torch.Tensor:
    """Return the diagonals of the inverses of the blocks of stars, ``(B, 4 a + 1)``."""
    (down, rest), (up, other) = factors[0], factors[-1]
    total = (rest * other).sum(1)
    total[:, : 2 * down.shape[2]] += (down * up).sum(2).flatten(1)
    return total


def _made(
    kinds: Kinds, schur: Complements, quarters: np.ndarray, spacing: int
) -> Iterator[tuple[slice, list[_Pair], float]]:
    """Factorise the blocks of all stars that differ.

    Yields
    ------
    slice, list, float
        The numbers of some operators, their factors, and the most that a diagonal of an inverse times
        that of the block is.
    """
    device = schur.device
    nodes = [torch.from_numpy(one).to(device) for one in star_parts(spacing)]
    for examples, numbers in kinds.made(_STARS[device.type]):
        of = torch.from_numpy(quarters[examples]).to(device)
        parts = [schur.among(some, at) for some, at in zip(of.unbind(1), nodes, strict=True)]
        factors, diagonal = _factorised(parts, symmetric=schur.symmetric)
        low = [(arms.to(_PRECISION), rest.to(_PRECISION)) for arms, rest in factors]
        contrast = float((_inverse_diagonal(low) * diagonal).max())
        yield numbers, low, contrast


def _factorised(
    quarters: Sequence[torch.Tensor], *, symmetric: bool
) -> tuple[list[_Pair], torch.Tensor]:
    """Return ``F`` and ``P`` of some stars, and ``G^T`` and ``Q`` unless they are the same; and the diagonal.

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
    diagonals = [one.diagonal(dim1=-2, dim2=-1).flatten(1) for one in (x, y)]
    first = _roots(x.flatten(0, 1), symmetric=symmetric)  # F, G^T
    couplings = [  # (C G)^T, F B
        torch.bmm(arms, one.flatten(0, 1))
        for arms, one in zip(reversed(first), beside, strict=True)
    ]
    both = [one.unflatten(0, (count, 2)).flatten(1, 2) for one in couplings]
    left = torch.baddbmm(y, both[0].mT, both[-1], alpha=-1.0)
    second = _roots(left, symmetric=symmetric)  # f, g^T
    factors = []
    for arms, line, coupling in zip(first, second, couplings, strict=True):
        rest = line.new_empty(count, width, 2 * arm + width)
        through = torch.bmm(coupling.mT, arms).unflatten(0, (count, 2))  # C X^-1, (X^-1 B)^T
        through = through.transpose(1, 2).flatten(2)
        rest[..., : 2 * arm] = torch.bmm(line, through).neg_()
        rest[..., 2 * arm :] = line
        factors.append((arms.unflatten(0, (count, 2)), rest))
    return factors, torch.cat(diagonals, dim=1)


def _roots(blocks: torch.Tensor, *, symmetric: bool) -> list[torch.Tensor]:
    """Return ``f`` and ``g^T`` with ``A^-1 = g f``; where ``g^T`` is ``f``, this alone."""
    unit = torch.eye(blocks.shape[1]).to(blocks).expand_as(blocks)
    if not symmetric:
        return [torch.linalg.inv(blocks), unit]
    factor = torch.linalg.cholesky(blocks)
    return [torch.linalg.solve_triangular(factor, unit, upper=False)]
