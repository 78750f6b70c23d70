"""Plans of local solvers that are linear in the perimeter values: one matrix product, or half of one.

The reflection through the centre, ``(y, x) -> (m - y, m - x)``, shifts a perimeter by half its
length, so that folding it reads whole rows, and reverses the query points line by line. Sums and
differences of the two halves of a perimeter give the even and the odd part of the values at half of
the points; their sum and difference are the values.

Shape letters: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``Q = R N`` query points in ``R``
lines of ``N`` that are each reversed, ``H`` points in the first half of a line, its centre included.
"""

from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.bound import Plan
from mosaicdd.local_solvers.parity import ParityPlan, keeps_reflections


class LinearPlan:
    """Apply a dense operator ``A (Q, P)`` to perimeters: ``out = g A^T``."""

    def __init__(self, operator: np.ndarray, *, device: torch.device, dtype: torch.dtype):
        columns = np.ascontiguousarray(np.asarray(operator).T)
        self.operator = torch.as_tensor(columns).to(device=device, dtype=dtype)  # (P, Q)

    def __call__(self, g: torch.Tensor, out: torch.Tensor) -> None:
        """Write the values ``(B, Q)`` for the perimeters ``g``, ``(B, P)``, to ``out``."""
        torch.mm(g, self.operator, out=out)


_ASYMMETRY = 1e-12  # of an operator, relative to its largest entry, that counts as rounding
_CHUNK_VALUES = 300_000  # that a chunk of subdomains reads and writes; bounds the plan's memory
# Columns of a product that MKL works on at once: a remainder costs more than zeros in its place.
_COLUMNS = {torch.float64: 12, torch.float32: 16}


class ReflectionPlan:
    """Apply an operator that commutes with the reflection through the centre, on a processor.

    The reversed half of a line is written through a view of negative stride, which torch does not
    have: the additions after the products are numpy's, on the same memory.

    Parameters
    ----------
    operator
        ``(Q, P)`` values at the query points for unit values on each perimeter node.
    lines
        ``R``, as `reversed_lines` found it.
    """

    def __init__(self, operator: np.ndarray, lines: int, *, dtype: torch.dtype):
        points, perimeter = operator.shape
        self._line = (lines, points // lines)
        self._half = -(-points // lines // 2)
        rows = operator.reshape(*self._line, perimeter)[:, : self._half]
        first, second = np.split(rows.reshape(-1, perimeter) / 2, 2, axis=1)
        self._width = len(first)  # R H
        columns = _COLUMNS.get(dtype, 1)
        padded = -(-self._width // columns) * columns
        self._operators = torch.zeros(2, perimeter // 2, padded, dtype=dtype)
        self._operators[..., : self._width] = torch.as_tensor(
            np.stack([first + second, first - second])
        ).mT
        self.chunk = max(1, _CHUNK_VALUES // (perimeter + points))
        self._memory = torch.empty(2 * self.chunk * (perimeter // 2 + padded), dtype=dtype)
        self._buffers: dict[int, _Buffers] = {}

    def __call__(self, g: torch.Tensor, out: torch.Tensor) -> None:
        """Write the values ``(B, Q)`` for the perimeters ``g``, ``(B, P)``, to ``out``."""
        first, second = g.chunk(2, dim=1)
        values = out.unflatten(1, self._line).numpy()  # (B, R, N)
        halves = values[..., : self._half], values[..., ::-1][..., : self._half]
        chunks = max(1, -(-len(g) // self.chunk))
        size = max(1, -(-len(g) // chunks))
        for start in range(0, len(g), size):
            portion = slice(start, start + size)
            self._apply(first[portion], second[portion], halves[0][portion], halves[1][portion])

    def _apply(
        self, first: torch.Tensor, second: torch.Tensor, forward: np.ndarray, backward: np.ndarray
    ) -> None:
        """Do so for a chunk: halves of perimeters ``(B, P/2)`` to halves of lines ``(B, R, H)``."""
        buffers = self._buffers_of(len(first))
        torch.add(first, second, out=buffers.total)
        torch.sub(first, second, out=buffers.difference)
        torch.bmm(buffers.folded, self._operators, out=buffers.parts)
        np.add(buffers.even, buffers.odd, out=forward)
        np.subtract(buffers.even, buffers.odd, out=backward)

    def _buffers_of(self, subdomains: int) -> "_Buffers":
        """Return the views of the memory for a number of subdomains, made at its first use."""
        if subdomains not in self._buffers:
            _, half, padded = self._operators.shape
            sizes = [2 * subdomains * half, 2 * subdomains * padded]
            folded, parts = self._memory[: sum(sizes)].split(sizes)
            folded, parts = folded.view(2, subdomains, half), parts.view(2, subdomains, padded)
            even, odd = parts[..., : self._width].unflatten(2, (-1, self._half)).numpy()
            self._buffers[subdomains] = _Buffers(folded, folded[0], folded[1], parts, even, odd)
        return self._buffers[subdomains]


@dataclass(frozen=True)
class _Buffers:
    """Views of a plan's memory: making them anew at each call takes as long as some products."""

    # folded, total, difference: ``(2, B, P/2)`` and its two: the sum and the difference of the
    # halves of the perimeters
    folded: torch.Tensor
    total: torch.Tensor
    difference: torch.Tensor
    # parts, even, odd: what the products give, and its two without their padding, ``(B, R, H)``
    parts: torch.Tensor
    even: np.ndarray
    odd: np.ndarray


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


def linear_plan(
    operator: np.ndarray,
    points: np.ndarray,
    subdomain: Subdomain,
    *,
    device: torch.device,
    dtype: torch.dtype,
    weights: np.ndarray | None = None,
) -> Plan:
    """Plan a linear local solver: by half of the products where its symmetry allows it, of cubes by an eighth.

    The operator ``(Q, P)`` is of query points ``(Q, 2)``, (y, x) in cells; ``weights (Q,)`` are
    factors for the values.
    """
    operator = np.asarray(operator)
    if weights is not None:
        operator = np.asarray(weights)[:, None] * operator
    lines, on_cpu = reversed_lines(points, subdomain), torch.device(device).type == "cpu"
    if on_cpu and lines and _is_kept(operator, lines):
        return ReflectionPlan(operator, lines, dtype=dtype)
    if on_cpu and subdomain.axes > 2 and keeps_reflections(operator, points, subdomain):
        return ParityPlan(operator, np.rint(points).astype(int), subdomain, dtype=dtype)
    return LinearPlan(operator, device=device, dtype=dtype)


def _is_kept(operator: np.ndarray, lines: int) -> bool:
    """Say whether the reflection through the centre changes an operator by rounding only."""
    points, perimeter = operator.shape
    reflected = operator.reshape(lines, -1, perimeter)[:, ::-1].reshape(points, perimeter)
    reflected = np.roll(reflected, perimeter // 2, axis=1)
    return bool(np.abs(reflected - operator).max() <= _ASYMMETRY * np.abs(operator).max())
