"""A linear local solver by parities: in a cube an eighth of its products, where it keeps the reflections.

Along each axis values split into an even and an odd part; of three axes there are eight kinds, and an operator that
commutes with the reflections maps each kind to itself. Sums and differences make these parts, eight small
products take the place of a large one, and sums and differences put the results together.

Nodes come as *representatives*, whose coordinates are at most ``m / 2``, and their images: slot ``(e, r)`` is node ``r``
reflected in the axes where ``e`` is 1. A node in the middle of an axis has several slots.
"""

import itertools

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain

_CHUNK_VALUES = 2**16  # in the slots of a chunk of subdomains: its buffers stay in the cache
_ASYMMETRY = 1e-12  # of an operator, relative to its largest values, that counts as rounding
_PROBES = 4  # random perimeters that show an asymmetry


class ParityPlan:
    """Apply an operator that `keeps_reflections`, on a processor.

    Parameters
    ----------
    operator
        ``(Q, P)`` values at the query points for unit values on each perimeter node.
    points
        ``(Q, axes)``, whole numbers of cells.
    """

    def __init__(
        self, operator: np.ndarray, points: np.ndarray, subdomain: Subdomain, *, dtype: torch.dtype
    ):
        m, axes = subdomain.cells, subdomain.axes
        signs = np.array(list(itertools.product((0, 1), repeat=axes)))  # of kinds and of images
        around = _representatives(subdomain.perimeter, m)
        images = _numbers(np.where(signs[:, None], m - around, around), subdomain.perimeter, m)
        read = (
            np.abs(operator).max(axis=0)[images].any(axis=0)
        )  # a stencil without diagonals: no edges
        around, images = around[read], images[:, read]  # (kinds, r)
        inside = _representatives(points, m)
        share = len(signs) * 2 ** (2 * around == m).sum(axis=1)  # slots of a node are one
        rows = operator[_numbers(inside, points, m)][:, images] / share  # (R, kinds, r)
        parts = np.einsum("ke,Rer->krR", 1 - 2 * (signs @ signs.T % 2), rows)
        parts[np.abs(parts) <= _ASYMMETRY * np.abs(parts).max()] = 0.0
        self._parts = []
        for kind, part in enumerate(parts):
            used = np.flatnonzero(part.any(axis=0))  # what is odd vanishes in the middle
            if len(used):
                span = slice(int(used[0]), int(used[-1]) + 1)
                self._parts.append((kind, span, torch.tensor(part[:, span], dtype=dtype)))
        beyond = (2 * points > m).astype(int) @ 2 ** np.arange(axes)[::-1]
        folded = np.minimum(points, m - points)
        slots = len(inside) * beyond + _numbers(folded, inside, m)
        self._gather, self._scatter = (torch.from_numpy(i.reshape(1, -1)) for i in (images, slots))
        self._axes = axes
        self.chunk = max(1, _CHUNK_VALUES // (len(signs) * max(len(around), len(inside))))
        self._around = torch.empty(2, self.chunk, *images.shape, dtype=dtype)
        # The last of these is of what the products give; what they leave out is zero.
        self._inside = torch.zeros(3, self.chunk, len(signs), len(inside), dtype=dtype)

    def __call__(self, g: torch.Tensor, out: torch.Tensor) -> None:
        """Write the values ``(B, Q)`` for the perimeters ``g``, ``(B, P)``, to ``out``."""
        for values, result in zip(g.split(self.chunk), out.split(self.chunk), strict=True):
            count = len(values)
            slots, other = self._around[:, :count]
            torch.gather(values, 1, self._gather.expand(count, -1), out=slots.view(count, -1))
            even_and_odd = self._butterflies(slots, other, slots)
            first, second, products = self._inside[:, :count]
            for kind, span, part in self._parts:
                torch.mm(even_and_odd[:, kind], part, out=products[:, kind, span])
            put_together = self._butterflies(products, first, second).view(count, -1)
            torch.gather(put_together, 1, self._scatter.expand(count, -1), out=result)

    def _butterflies(
        self, values: torch.Tensor, first: torch.Tensor, second: torch.Tensor
    ) -> torch.Tensor:
        """Return sums and differences along all axes of values ``(B, kinds, r)``; two buffers serve in turns."""
        for axis in range(self._axes):
            low, high = values.unflatten(1, (2**axis, 2, -1)).unbind(2)
            plus, minus = first.unflatten(1, (2**axis, 2, -1)).unbind(2)
            torch.add(low, high, out=plus)
            torch.sub(low, high, out=minus)
            values, first, second = first, second, first
        return values


def keeps_reflections(operator: np.ndarray, points: np.ndarray, subdomain: Subdomain) -> bool:
    """Say whether reflections in all axes change what an operator ``(Q, P)`` of nodes gives by rounding only."""
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
    """Return the nodes with coordinates of at most ``m / 2``, each once, by which axes they are in the middle of."""
    low = np.unique(nodes[(2 * nodes <= m).all(axis=1)], axis=0)
    return low[np.lexsort((2 * low != m).T[::-1])]


def _numbers(nodes: np.ndarray, among: np.ndarray, m: int) -> np.ndarray:
    """Return which of some nodes are those, ``(.., axes)`` to ``(..)``; -1 where none is."""
    axes = among.shape[1]
    number = np.full((m + 1,) * axes, -1)
    number[tuple(among.T)] = np.arange(len(among))
    return number[tuple(np.moveaxis(nodes, -1, 0))]
