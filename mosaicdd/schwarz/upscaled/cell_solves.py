"""Local solves between coarse nodes: on the lines through them, and inside of the coarse cells.

Values are held in `CellValues`: of all coarse cells those at the same place side by side, so that every step
runs over memory in order. Shape letters: ``n`` problems; sources are times the squared spacing.
"""

import functools
import operator

import torch

from mosaicdd.local_solvers.upscaling import RATIO

# On the lines: five rounds do more than six would without (`scripts/bench_field_networks.py`).
_RELAXATION = 1.25
_Node = tuple[int, int]


class CellValues:
    """Values at fine nodes, those at the same place in all coarse cells side by side.

    ``coarse``: values at the coarse nodes, ``(n, rows, columns)``.
    """

    def __init__(self, coarse: torch.Tensor):
        self._values = coarse.new_zeros(RATIO, RATIO, *coarse.shape)
        self._values[0, 0] = coarse

    def at(self, row: int, column: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Return those at so many fine nodes from the first of each cell, of so many cells per axis."""
        (down, y), (across, x) = divmod(row, RATIO), divmod(column, RATIO)
        rows, columns = shape
        return self._values[y, x, :, down : down + rows, across : across + columns]

    def interpolate(self, along_x: list[torch.Tensor], along_y: list[torch.Tensor]) -> None:
        """Fill the lines between coarse nodes, by how high nodes lie on the way to the next."""
        nodes = self._values[0, 0]
        for i in range(1, RATIO):
            between = self._values[0, i, :, :, :-1], self._values[i, 0, :, :-1]
            for axis, high, out in zip(
                (2, 1), (along_x[i - 1], along_y[i - 1]), between, strict=True
            ):
                low = nodes.narrow(axis, 0, nodes.shape[axis] - 1)
                torch.addcmul(low, nodes.diff(dim=axis), high.to(low), out=out)

    def impose(self, rows: slice | int, columns: slice | int, values: torch.Tensor) -> None:
        """Set the values ``(n, nodes)`` of an outermost line."""
        for i in range(RATIO):
            along = values[:, i::RATIO]
            if isinstance(rows, int):
                self._values[0, i, :, rows, : along.shape[1]] = along
            elif isinstance(columns, int):
                self._values[i, 0, :, : along.shape[1], columns] = along

    def joined(self) -> torch.Tensor:
        """Return the values as a field, ``(n, fine rows, fine columns)``."""
        n, rows, columns = self._values.shape[2:]
        whole = self._values.permute(2, 3, 0, 4, 1).reshape(n, RATIO * rows, RATIO * columns)
        return whole[:, : 1 - RATIO, : 1 - RATIO]


class Lines:
    """Solves for the nodes between coarse ones on the lines of one axis that are not outermost.

    All else is held: systems of three unknowns, by elimination. All numbers are arrays over the coarse
    cells of these lines.
    ``diagonal``: of each node between coarse ones.
    """

    def __init__(
        self,
        axis: int,
        up: torch.Tensor,
        right: torch.Tensor,
        reaction: torch.Tensor,
        source: torch.Tensor | None,
    ):
        self._axis = axis
        nodes = tuple((n - 1) // RATIO for n in reaction.shape)
        self._shape = nodes[axis] - 1, nodes[1 - axis]  # lines, cells
        along, beside = (right, up) if axis == 0 else (up, right)
        self._along = [self._at(along, 0, i).contiguous() for i in range(RATIO)]
        self._before: list[torch.Tensor] = []
        self._after: list[torch.Tensor] = []
        self._sources: list[torch.Tensor] = []
        self.diagonal: list[torch.Tensor] = []
        self._inverse: list[torch.Tensor] = []  # of pivots
        self._factor: list[torch.Tensor] = []
        for i in range(1, RATIO):
            self._before.append(self._at(beside, -1, i).contiguous())
            self._after.append(self._at(beside, 0, i).contiguous())
            d = self._before[-1] + self._after[-1] + self._at(reaction, 0, i)
            d += self._along[i - 1] + self._along[i]
            self.diagonal.append(d)
            if i > 1:
                self._factor.append(self._along[i - 1] * self._inverse[-1])
                d = d - self._factor[-1] * self._along[i - 1]
            self._inverse.append(d.reciprocal())
            if source is not None:
                self._sources.append(self._at(source, 0, i).contiguous())

    def _at(self, values: torch.Tensor | CellValues, beside: int, i: int) -> torch.Tensor:
        """Return the ``i``-th of each coarse cell's, of nodes or grid edges so many lines beside."""
        first, shape = (RATIO + beside, i), self._shape
        if self._axis == 1:
            first, shape = first[::-1], shape[::-1]
        return _every(values, first, shape)

    def solve(self, u: CellValues) -> None:
        """Overwrite the values between coarse nodes."""
        b = self._given(u)
        b[0].addcmul_(self._along[0], self._at(u, 0, 0))
        b[-1].addcmul_(self._along[-1], self._at(u, 0, RATIO))
        for i, factor in enumerate(self._factor):
            b[i + 1].addcmul_(factor, b[i])
        for i in reversed(range(RATIO - 1)):
            if i + 1 < len(b):
                b[i].addcmul_(self._along[i + 1], b[i + 1])
            b[i] *= self._inverse[i]
        for i in range(RATIO - 1):
            self._at(u, 0, i + 1).lerp_(b[i], _RELAXATION)

    def residual(self, u: CellValues) -> list[torch.Tensor]:
        """Return ``b - A u`` between coarse nodes."""
        b = self._given(u)
        for i, (rest, d) in enumerate(zip(b, self.diagonal, strict=True)):
            rest.addcmul_(self._along[i], self._at(u, 0, i))
            rest.addcmul_(self._along[i + 1], self._at(u, 0, i + 2))
            rest.addcmul_(d, self._at(u, 0, i + 1), value=-1.0)
        return b

    def _given(self, u: CellValues) -> list[torch.Tensor]:
        """Return the source with what the lines beside give."""
        b = []
        for i in range(1, RATIO):
            driven = self._before[i - 1] * self._at(u, -1, i)
            driven.addcmul_(self._after[i - 1], self._at(u, 1, i))
            b.append(driven.add_(self._sources[i - 1]) if self._sources else driven)
        return b


def residual_at_nodes(
    u: CellValues,
    up: torch.Tensor,
    right: torch.Tensor,
    reaction: torch.Tensor,
    source: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the diagonal at the coarse nodes that are not outermost, and ``b - A u`` there."""
    shape = tuple((n - 1) // RATIO - 1 for n in reaction.shape)
    here, low = RATIO, RATIO - 1
    diagonal = _every(reaction, (here, here), shape).clone()
    left = torch.zeros_like(u.at(here, here, shape))
    if source is not None:
        left += _every(source, (here, here), shape)
    for values, edge, node in (
        (up, (low, here), (low, here)),
        (up, (here, here), (here + 1, here)),
        (right, (here, low), (here, low)),
        (right, (here, here), (here, here + 1)),
    ):
        k = _every(values, edge, shape)
        diagonal += k
        left.addcmul_(k, u.at(*node, shape))
    return diagonal, left.addcmul_(diagonal, u.at(here, here, shape), value=-1.0)


_BLACK = ((1, 1), (1, 3), (3, 1), (3, 3), (2, 2))
_RED = ((1, 2), (2, 1), (2, 3), (3, 2))


class Cells:
    """Solves for the 3 x 3 nodes inside the coarse cells, given those on their perimeters.

    Corners and middle are coupled to the other four only, and these to them: the first are eliminated,
    the rest is a system of four, by Cholesky. All numbers are arrays over the cells.
    """

    def __init__(
        self,
        up: torch.Tensor,
        right: torch.Tensor,
        reaction: torch.Tensor,
        source: torch.Tensor | None,
    ):
        self._shape = tuple((n - 1) // RATIO for n in reaction.shape)

        @functools.cache  # both nodes of a grid edge ask for it
        def cut(values: torch.Tensor, i: int, j: int) -> torch.Tensor:
            return _every(values, (i, j), self._shape).contiguous()

        self._beside: dict[_Node, list[tuple[_Node, torch.Tensor]]] = {}
        diagonal: dict[_Node, torch.Tensor] = {}
        for i, j in (*_BLACK, *_RED):
            self._beside[i, j] = [
                ((i - 1, j), cut(up, i - 1, j)),
                ((i + 1, j), cut(up, i, j)),
                ((i, j - 1), cut(right, i, j - 1)),
                ((i, j + 1), cut(right, i, j)),
            ]
            total = cut(reaction, i, j)
            diagonal[i, j] = sum((k for _, k in self._beside[i, j]), total)
        self._inverse = {node: diagonal[node].reciprocal() for node in _BLACK}
        self._shares = {  # of black nodes, over their diagonal
            node: [
                (red, k * self._inverse[node])
                for red, k in sorted(self._beside[node], key=operator.itemgetter(0))
                if red in _RED
            ]
            for node in _BLACK
        }
        # What is left of red nodes when the black ones are gone, then its factor, by columns: the lower
        # triangles, of a node and one before it.
        a = {(r, r): diagonal[r] for r in _RED}
        for black in _BLACK:
            between = dict(self._beside[black])
            for number, (red, share) in enumerate(self._shares[black]):
                for other, _ in self._shares[black][number:]:
                    if (other, red) in a:
                        a[other, red].addcmul_(between[other], share, value=-1.0)
                    else:
                        a[other, red] = (between[other] * share).neg_()
        self._factor: dict[tuple[_Node, _Node], torch.Tensor] = {}
        for number, red in enumerate(_RED):
            root = self._factor[red, red] = a[red, red].rsqrt()  # of the diagonal, inverted
            later = _RED[number + 1 :]
            for place, other in enumerate(later):
                self._factor[other, red] = a[other, red].mul_(root)
                for third in later[: place + 1]:
                    a[other, third].addcmul_(
                        self._factor[other, red], self._factor[third, red], value=-1.0
                    )

        self._sources: dict[_Node, torch.Tensor] = {}
        if source is not None:
            self._sources = {node: cut(source, *node) for node in self._beside}

    def solve(self, u: CellValues) -> None:
        """Overwrite the values inside."""
        f = {node: u.at(*node, self._shape) for node in self._beside}
        for node, beside in self._beside.items():
            if self._sources:
                f[node].copy_(self._sources[node])
            else:
                f[node].zero_()
            for other, k in beside:
                if other not in f:
                    f[node].addcmul_(k, u.at(*other, self._shape))
        for black in _BLACK:
            for red, k in self._shares[black]:
                f[red].addcmul_(k, f[black])
            f[black] *= self._inverse[black]
        for number, red in enumerate(_RED):
            f[red] *= self._factor[red, red]
            for other in _RED[number + 1 :]:
                f[other].addcmul_(self._factor[other, red], f[red], value=-1.0)
        for number, red in reversed(list(enumerate(_RED))):
            for other in _RED[number + 1 :]:
                f[red].addcmul_(self._factor[other, red], f[other], value=-1.0)
            f[red] *= self._factor[red, red]
        for black in _BLACK:
            for red, k in self._shares[black]:
                f[black].addcmul_(k, f[red])


def _every(
    values: torch.Tensor | CellValues, first: tuple[int, ...], shape: tuple[int, ...]
) -> torch.Tensor:
    """Return what stands at the same place in so many coarse cells per axis, from a first one on."""
    if isinstance(values, CellValues):
        row, column = first
        return values.at(row, column, shape)
    rows, columns = shape
    return values[..., first[0] :: RATIO, first[1] :: RATIO][..., :rows, :columns]
