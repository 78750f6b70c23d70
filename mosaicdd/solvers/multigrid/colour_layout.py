"""The layout of a level's values: nodes by the parity of their indices.

A node with the global indices ``2 s + c`` per axis is of class ``c``, a tuple of 0 and 1, at slot ``s``. Each of the ``C``
classes (4 in the plane, 8 in space) is a flat array of ``M`` slots with slots without nodes around it, so a neighbour in
any direction is one of another class at a fixed distance. Every operation on a class is one on a contiguous
stretch of numbers, of any number of axes; slots without nodes take part and hold zeros, or what nobody reads. The
nodes of class zero are those of the next coarser level, and where that is as fine as this one along some axes
(`CoarseningPattern`) those of more classes.
"""

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.axes import even

Class = tuple[int, ...]

Step = tuple[int, ...]
"""To a neighbour: -1, 0 or 1 per axis."""
# Slots of a class that are handled at once, so that what a step reads stays in the last cache; with fewer, for the ones
# before, calls themselves would take half of the time.
_STRETCH = 2**16


class CoarseningPattern:
    """A coarsening pattern: every second node along some axes, along the others all.

    Attributes
    ----------
    axes
        Whether each is halved.
    classes
        Of the coarse nodes, ascending; in the order of vectors ``(K, M)`` of these.
    odd
        Of each class of nodes, along which halved axes their indices are odd: along none of coarse nodes.
    number_of
        Of each class of the level below, the number of the class in which its nodes are.
    """

    def __init__(self, axes: Sequence[bool]):
        self.axes = tuple(axes)
        self.classes: list[Class] = list(
            itertools.product(*[(0,) if halved else (0, 1) for halved in self.axes])
        )
        self.number = {of: i for i, of in enumerate(self.classes)}
        self.odd: dict[Class, Class] = {}
        self.number_of: dict[Class, int] = {}
        for of in itertools.product((0, 1), repeat=len(self.axes)):
            pairs = list(zip(of, self.axes, strict=True))
            self.odd[of] = tuple([c if halved else 0 for c, halved in pairs])
            self.number_of[of] = self.number[tuple([0 if halved else c for c, halved in pairs])]

    @staticmethod
    @functools.cache
    def of(axes: tuple[bool, ...]) -> "CoarseningPattern":
        """Return the pattern of some axes; the same object each time."""
        return CoarseningPattern(axes)

    @classmethod
    def of_all(cls, axes: int) -> "CoarseningPattern":
        """Return the pattern that halves all of so many axes."""
        return cls.of((True,) * axes)

    def coarse(self, box: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the first and last coarse node per axis in a box, by their indices in the coarser level."""
        return [self.along(axis, *ends) for axis, ends in enumerate(box)]

    def along(self, axis: int, first: int, last: int) -> tuple[int, int]:
        """Return the first and last coarse node between two nodes of an axis, by their indices in the coarser level."""
        return ((first + 1) >> 1, last >> 1) if self.axes[axis] else (first, last)


class _Neighbours(dict[tuple[Class, Step], tuple[Class, int]]):
    """The neighbours of classes, computed when they are first asked for."""

    def __init__(self, strides: Sequence[int]):
        self._strides = strides

    def __missing__(self, key: tuple[Class, Step]) -> tuple[Class, int]:
        """Compute the neighbour of a class in a direction."""
        pairs = list(zip(*key, self._strides, strict=True))
        distance = sum([((c + s) >> 1) * stride for c, s, stride in pairs])
        self[key] = tuple([c ^ (s & 1) for c, s, _ in pairs]), distance
        return self[key]


class ColourLayout:
    """The classes of a box of nodes.

    Parameters
    ----------
    first, last
        The global indices of the box's first and last nodes per axis. Colours and coarse nodes are
        chosen by them, so they do not depend on how nodes are shared among ranks.
    device
        On which values lie, torch's.

    Attributes
    ----------
    box
        The first and the last node per axis.
    classes
        All of them, ascending.
    size
        ``M``, slots of a class.
    count
        Nodes of the box.
    neighbours
        By class and step: the class of the nodes so many further, and how many slots further they are.
    """

    def __init__(
        self, first: Sequence[int], last: Sequence[int], device: torch.device | str = "cpu"
    ):
        self.first, self.last, self.device = tuple(first), tuple(last), torch.device(device)
        self.axes = len(self.first)
        self._base = [node >> 1 for node in self.first]
        self._slots = [
            (high >> 1) - low + 1 for low, high in zip(self._base, self.last, strict=True)
        ]
        strides = [1]
        for count in self._slots[
            :0:-1
        ]:  # one slot without a node after each row parts it from the next
            strides.insert(0, strides[0] * (count + 1))
        self._strides = strides
        self._low = sum(strides)
        self._high = sum(n * stride for n, stride in zip(self._slots, strides, strict=True)) + 1
        self.size = self._high + self._low
        self.classes: list[Class] = list(itertools.product((0, 1), repeat=self.axes))
        self.number = {of: i for i, of in enumerate(self.classes)}
        self.box = list(zip(self.first, self.last, strict=True))
        self.count = math.prod([last - first + 1 for first, last in self.box])
        self.neighbours = _Neighbours(self._strides)
        self._stretches: dict[int, list[slice]] = {}

    @classmethod
    def of(
        cls, box: Sequence[tuple[int, int]], device: torch.device | str = "cpu"
    ) -> "ColourLayout":
        """Return the layout of a box, by its first and last node per axis; layouts of late are kept."""
        return _layout_of(tuple(box), str(device))

    def new(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return zeros at all slots of all classes, ``(C, M)``."""
        return torch.zeros(len(self.classes), self.size, dtype=dtype, device=self.device)

    def room(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return as much room, where nothing has been written yet."""
        return torch.empty(len(self.classes), self.size, dtype=dtype, device=self.device)

    def distance(self, slots: Sequence[int]) -> int:
        """Return the distance in the flat array of a distance in slots per axis."""
        return sum([n * stride for n, stride in zip(slots, self._strides, strict=True)])

    def stretches(self, slots: int = _STRETCH) -> list[slice]:
        """Return parts of the flat arrays that hold all nodes, for the cache.

        Each is so long that neighbours are in the same stretch or the one beside it. On a GPU there is
        one, as its time goes into calls.

        Parameters
        ----------
        slots
            Of a stretch, about.
        """
        if slots not in self._stretches:
            count, reach, low = self._high - self._low, self._low + 1, self._low
            parts = even(count, max(slots, 2 * reach) if self.device.type == "cpu" else count)
            self._stretches[slots] = [slice(low + part.start, low + part.stop) for part in parts]
        return self._stretches[slots]

    def at_slots(self, values: torch.Tensor) -> torch.Tensor:
        """Return a view of values by their slots per axis: of one class, or of several, ``(C, M)``."""
        shape, strides = (*values.shape[:-1], *self._slots), (*values.stride()[:-1], *self._strides)
        return torch.as_strided(values, shape, strides, values.storage_offset() + self._low)

    def by_class(self, values: torch.Tensor, box: Sequence[tuple[int, int]]) -> list[torch.Tensor]:
        """Return per class a view of the values at its nodes in a box, by its first and last nodes."""
        by_slots = self.at_slots(values)
        return [of[self.slots_of(number, box)] for number, of in enumerate(by_slots)]

    def indices_of(
        self, number: int, box: Sequence[tuple[int, int]], origin: Sequence[int] | None = None
    ) -> tuple[slice, ...]:
        """Return the indices of a class's nodes in a box, by its first and last ones; in an array from a node on, if given."""
        firsts, indices = origin or (0,) * self.axes, []
        for c, (low, high), first in zip(self.classes[number], box, firsts, strict=True):
            start, stop = low + ((low ^ c) & 1) - first, high - ((high ^ c) & 1) + 1 - first
            indices.append(slice(start, max(start, stop), 2))
        return tuple(indices)

    def slots_of(self, number: int, box: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
        """Return the slots of a class's nodes in a box, by its first and last indices."""
        ends = zip(self.classes[number], box, self._base, strict=True)
        return tuple(
            [
                slice(((low + 1 - c) >> 1) - base, max(((high - c) >> 1) - base + 1, 0))
                for c, (low, high), base in ends
            ]
        )

    def places(self, nodes: Sequence[np.ndarray]) -> torch.Tensor:
        """Return the places of nodes in a flattened ``(C, M)``, by their global indices per axis."""
        number, slot = np.zeros((2, len(nodes[0])), int)
        slot += self._low
        for node, base, stride in zip(nodes, self._base, self._strides, strict=True):
            number = 2 * number + (node & 1)
            slot += ((node >> 1) - base) * stride
        return torch.from_numpy(number * self.size + slot).to(self.device)

    def take(
        self,
        array: torch.Tensor,
        out: torch.Tensor,
        start: Sequence[int] | None = None,
        where: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Fill ``(C, M)`` with an array of nodes of the box.

        Parameters
        ----------
        array
            On any device.
        start
            Its first node; by default the box's.
        where
            At the same nodes, 0 where the result is zero whatever the array; by default nowhere.
        """
        first = self.first if start is None else start
        box = [(low, low + count - 1) for low, count in zip(first, array.shape, strict=True)]
        array = array.to(self.device)
        for number, there in enumerate(self.by_class(out, box)):
            nodes = self.indices_of(number, box, first)
            there.copy_(array[nodes])
            if where is not None:
                # In place, as another array of that size takes as long as all else.
                there.mul_(where[nodes].to(self.device))
        return out

    def give(
        self, values: torch.Tensor, out: torch.Tensor, start: Sequence[int] | None = None
    ) -> torch.Tensor:
        """Fill an array of nodes from ``(C, M)``, as far as these are in the box.

        Parameters
        ----------
        out
            On any device.
        start
            Its first node; by default the box's.
        """
        first = self.first if start is None else start
        ends = zip(self.box, first, out.shape, strict=True)
        box = [(max(b, low), min(e, low + count - 1)) for (b, e), low, count in ends]
        for number, there in enumerate(self.by_class(values, box)):
            out[self.indices_of(number, box, first)] = there
        return out

    def of_coarse(self, by: CoarseningPattern, indices: tuple[slice, ...]) -> tuple[slice, ...]:
        """Return the slots of coarse nodes by their indices in the coarser level, every second per axis."""
        return tuple(
            [
                slice(i.start - base, max(i.stop - base, 0), i.step)
                if halved
                else slice((i.start >> 1) - base, max(((i.stop - 1) >> 1) - base + 1, 0))
                for i, base, halved in zip(indices, self._base, by.axes, strict=True)
            ]
        )


@functools.lru_cache(256)
def _layout_of(box: tuple[tuple[int, int], ...], device: str) -> ColourLayout:
    return ColourLayout([first for first, _ in box], [last for _, last in box], device)


def forward(axes: int) -> list[Step]:
    """Return one direction of each pair of opposite ones to the ``3^axes - 1`` nodes around a node."""
    steps = itertools.product((-1, 0, 1), repeat=axes)
    return [step for step in steps if step > (0,) * axes]


@functools.cache
def opposite(step: Step) -> Step:
    """Return the direction back."""
    return tuple([-s for s in step])


@functools.cache
def added(first: Step, second: Step) -> Step:
    """Return the distance of two steps one after another."""
    return tuple([a + b for a, b in zip(first, second, strict=True)])
