"""The layout of a level's values: nodes by the parity of their indices.

A node with the global indices ``2 s + c`` per axis is of class ``c``, a tuple of 0 and 1, at slot ``s``. Each of the ``C``
classes (4 in the plane, 8 in space) is a flat array of ``M`` slots with slots without nodes around it, so a neighbour in
any direction is one of another class at a fixed distance. Every operation on a class is one on a contiguous
stretch of numbers, of any number of axes; slots without nodes take part and hold zeros, or what nobody reads. The
nodes of class zero are those of the next coarser level, and where that is as fine as this one along some axes
(`CoarseningPattern`) those of more classes.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from mosaicdd.lattice.axes import even

Class = tuple[int, ...]
Step = tuple[int, ...]
"""To a neighbour: -1, 0 or 1 per axis."""
Slots = tuple[int, ...]
"""To a slot: so many per axis."""

# Slots of a class that are handled at once, so that what a step reads stays in the last cache; with fewer, for the ones
# before, calls themselves would take half of the time.
_STRETCH = 2**16


class CoarseningPattern:
    """Which nodes of a level are those of the next coarser one: along some axes every second, along the others all.

    Attributes
    ----------
    axes
        Whether each is halved.
    classes
        Of the coarse nodes, ascending; in the order of vectors ``(K, M)`` of these.
    """

    def __init__(self, axes: Sequence[bool]):
        self.axes = tuple(axes)
        self.classes: list[Class] = list(
            itertools.product(*[(0,) if halved else (0, 1) for halved in self.axes])
        )
        self.number = {of: i for i, of in enumerate(self.classes)}

    @classmethod
    def of_all(cls, axes: int) -> "CoarseningPattern":
        """Return that of so many axes, along each."""
        return cls((True,) * axes)

    def odd(self, of: Class) -> Class:
        """Return along which halved axes the indices of a class are odd: along none of coarse nodes."""
        return tuple(c if halved else 0 for c, halved in zip(of, self.axes, strict=True))

    def number_of(self, below: Class) -> int:
        """Return the number of the class in which the nodes of one of the level below are."""
        along = zip(below, self.axes, strict=True)
        return self.number[tuple(0 if halved else c for c, halved in along)]

    def coarse(self, box: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the first and last coarse node per axis in a box, by their indices in the level below."""
        return [self.along(axis, *ends) for axis, ends in enumerate(box)]

    def along(self, axis: int, first: int, last: int) -> tuple[int, int]:
        """Return the first and last coarse node from a node to another along an axis, by their indices in the level below."""
        return ((first + 1) >> 1, last >> 1) if self.axes[axis] else (first, last)


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
    classes
        All of them, ascending.
    size
        ``M``, slots of a class.
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
        self._neighbours: dict[tuple[Class, Step], tuple[Class, int]] = {}

    @classmethod
    def of(
        cls, box: Sequence[tuple[int, int]], device: torch.device | str = "cpu"
    ) -> "ColourLayout":
        """Return those of a box, by its first and last node per axis."""
        return cls([first for first, _ in box], [last for _, last in box], device)

    @property
    def box(self) -> list[tuple[int, int]]:
        """The first and the last node per axis."""
        return list(zip(self.first, self.last, strict=True))

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return math.prod(last - first + 1 for first, last in self.box)

    def new(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return zeros at all slots of all classes, ``(C, M)``."""
        return self.room(dtype).zero_()

    def room(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return as much room, where nothing has been written yet."""
        return torch.empty(len(self.classes), self.size, dtype=dtype, device=self.device)

    def neighbour(self, of: Class, step: Step) -> tuple[Class, int]:
        """Return the class of the nodes so many further than those of a class, and how many slots further they are."""
        if (of, step) not in self._neighbours:
            there = tuple(c ^ (s & 1) for c, s in zip(of, step, strict=True))
            self._neighbours[of, step] = there, self.distance(slots_beside(of, step))
        return self._neighbours[of, step]

    def distance(self, slots: Sequence[int]) -> int:
        """Return how many slots of the flat array so many slots per axis are."""
        return sum(n * stride for n, stride in zip(slots, self._strides, strict=True))

    def stretches(self, slots: int = _STRETCH) -> list[slice]:
        """Return parts of the flat arrays that hold all nodes, for the cache.

        Each is so long that neighbours are in the same stretch or the one beside it, see `in_turn`. On a GPU there is
        one, as its time goes into calls.

        Parameters
        ----------
        slots
            Of a stretch, about.
        """
        count, reach = self._high - self._low, self._low + 1
        parts = even(count, max(slots, 2 * reach) if self.device.type == "cpu" else count)
        return [slice(self._low + part.start, self._low + part.stop) for part in parts]

    def at_slots(self, values: torch.Tensor) -> torch.Tensor:
        """Return a view of one class's values by their slots per axis."""
        return torch.as_strided(
            values, self._slots, self._strides, values.storage_offset() + self._low
        )

    def by_class(
        self, values: torch.Tensor
    ) -> Iterator[tuple[Class, torch.Tensor, tuple[slice, ...]]]:
        """Yield each class with a view of its nodes' values, and the global indices of these."""
        for number, of in enumerate(self.classes):
            there = self.at_slots(values[number])[self.slots_of(number, self.box)]
            yield of, there, self.indices_of(number, self.box)

    def indices_of(self, number: int, box: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
        """Return the global indices of a class's nodes in a box, by its first and last ones."""
        return tuple(
            slice(low + ((low ^ c) & 1), high - ((high ^ c) & 1) + 1, 2)
            for c, (low, high) in zip(self.classes[number], box, strict=True)
        )

    def slots_of(self, number: int, box: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
        """Return at which slots the nodes of a class are in a box, by its first and last indices."""
        return tuple(
            slice((along.start >> 1) - base, max(((along.stop - 1) >> 1) - base + 1, 0))
            for along, base in zip(self.indices_of(number, box), self._base, strict=True)
        )

    def places(self, nodes: Sequence[np.ndarray]) -> torch.Tensor:
        """Return where nodes are in a flattened ``(C, M)``, by their global indices per axis."""
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
        for number, values in enumerate(out):
            there = self.at_slots(values)[self.slots_of(number, box)]
            nodes = _since(first, self.indices_of(number, box))
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
        for number, of_class in enumerate(values):
            there = self.at_slots(of_class)[self.slots_of(number, box)]
            out[_since(first, self.indices_of(number, box))] = there
        return out

    def of_coarse(self, by: CoarseningPattern, indices: tuple[slice, ...]) -> tuple[slice, ...]:
        """Return at which slots the coarse nodes of some indices of the coarser level are, every second per axis."""
        return tuple(
            slice(i.start - base, max(i.stop - base, 0), i.step)
            if halved
            else slice((i.start >> 1) - base, max(((i.stop - 1) >> 1) - base + 1, 0))
            for i, base, halved in zip(indices, self._base, by.axes, strict=True)
        )


def _since(first: Sequence[int], indices: tuple[slice, ...]) -> tuple[slice, ...]:
    """Return where global indices are in an array from a node on."""
    return tuple(
        slice(i.start - low, max(i.stop - low, 0), i.step)
        for i, low in zip(indices, first, strict=True)
    )


def slots_beside(of: Class, step: Step) -> Slots:
    """Return how many slots per axis from a node of a class to the one so many nodes further."""
    return tuple((c + s) >> 1 for c, s in zip(of, step, strict=True))


def forward(axes: int) -> list[Step]:
    """Return one direction of each pair of opposite ones to the ``3^axes - 1`` nodes around a node."""
    steps = itertools.product((-1, 0, 1), repeat=axes)
    return [step for step in steps if step > (0,) * axes]


def opposite(step: Step) -> Step:
    """Return the direction back."""
    return tuple(-s for s in step)
