"""Which of many things are alike, so that one operator serves all of them.

Elements with the same conductances have the same Schur complement; subdomains with the same elements the
same inverse. Where coefficients are constant, almost all are of one kind, and along straight sides of a
handful; where an outline cuts, or coefficients vary, each is of its own, or like few others. What many
have in common is applied by one matrix product to all of them; the rest by one product each, or one for
those few.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mosaicdd.lattice.axes import even

# Members of a kind from which on a product with all of them pays; the checkerboard of `scripts/bench_fields.py` shows it.
_MANY = 24
_LARGEST = 2**62  # key
_COMPARED = 1024  # members at a time, for the cache


@dataclass(frozen=True)
class Piece:
    """Members that are handled at once, and their operators, each of as many.

    Parameters
    ----------
    members
        Where they stand in the order of `Kinds`, those of an operator after one another.
    operators
        The numbers of their operators.
    shared
        Whether many have these.
    """

    members: slice
    operators: slice
    shared: bool

    def __len__(self) -> int:
        return self.operators.stop - self.operators.start


class Kinds:
    """Members in the order of their kinds: those that many have, then those that few have, or one.

    Parameters
    ----------
    keys
        ``(E,)``; members that are alike have the same.

    Attributes
    ----------
    keys
        ``(E,)``, as they were given, counted from 0.
    order
        ``(E,)``, the numbers of the members in that order, ascending for each kind.
    shared
        Where in the order the members of each kind stand that many have.
    own
        Where all others stand.
    operator
        ``(E,)``, the number of each member's operator: of kinds that many have first.
    few
        How many members have an operator that others have, but not many.
    examples
        ``(operators,)``, a member that has the operator.
    idle
        The numbers of shared operators that nothing is done with: their members have no unknowns.
    """

    def __init__(self, keys: np.ndarray):
        _, first, kind, counts = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        self.keys = kind
        common = np.flatnonzero(counts >= _MANY)
        if not len(common):  # as if all were different, in the order of their numbers
            first = kind = np.arange(len(keys))
            counts = np.ones_like(first)
        common = common[np.lexsort((first[common], -counts[common]))]
        few = np.flatnonzero(counts < _MANY) if len(common) else first
        few = few[np.lexsort((first[few], counts[few]))]
        kinds = np.concatenate([common, few])
        number = np.empty(len(kinds), int)
        number[kinds] = np.arange(len(kinds))
        self.operator = number[kind]
        self.order = np.argsort(self.operator, kind="stable")
        self.examples = first[kinds]
        ends = _ends(counts[common]).tolist()
        self.shared = [slice(a, b) for a, b in itertools.pairwise(ends)]
        self.own = slice(ends[-1], len(keys))
        self.few = int(counts[few][counts[few] > 1].sum())
        self.idle: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.order)

    def leave_out(self, empty: Callable[[int], bool]) -> None:
        """Let those be idle whose examples are empty."""
        shared = enumerate(self.examples[: len(self.shared)].tolist())
        self.idle = frozenset(number for number, member in shared if empty(member))

    def pieces(self, shared: int, own: int) -> list[Piece]:
        """Cut the order into pieces of at most so many members of kinds that many have, or few.

        The operators of a piece have as many members each. Without those that are idle.
        """
        pieces, numbers = [], np.arange(self.operators)
        counts = np.bincount(self.operator)
        starts = _ends(counts).tolist()
        many, idle = numbers < len(self.shared), np.isin(numbers, [*self.idle])
        alike = np.stack([counts, many, idle])
        ends = np.flatnonzero((alike[:, 1:] != alike[:, :-1]).any(0)) + 1
        for run in np.split(numbers, ends):
            first = int(run[0])
            if idle[first]:
                continue
            most = shared if many[first] else own
            for part in even(len(run), max(1, most // int(counts[first]))):
                operators = slice(first + part.start, first + part.stop)
                start, stop = starts[operators.start], starts[operators.stop]
                for portion in even(stop - start, most):
                    here = slice(start + portion.start, start + portion.stop)
                    pieces.append(Piece(here, operators, shared=bool(many[first])))
        return pieces

    def made(self, size: int) -> list[tuple[np.ndarray, slice]]:
        """Say how all operators are made, so many at a time: members that have them, and their numbers."""
        return [(self.examples[part], part) for part in even(self.operators, size)]

    @property
    def operators(self) -> int:
        """How many different operators there are."""
        return len(self.examples)

    @property
    def all_own(self) -> bool:
        """Whether nothing is shared, so that the order is that of the members."""
        return not self.shared


def _ends(counts: np.ndarray) -> np.ndarray:
    """Return where runs of so many begin, and where the last ends."""
    return np.append(0, np.cumsum(counts))


def alike(arrays: Sequence[np.ndarray], axes: int = 1) -> np.ndarray:
    """Return a key for each member, the same where all numbers of all arrays are, ``(E,)``.

    Parameters
    ----------
    arrays
        Their first axes count the members.
    axes
        How many these are.
    """
    rng = np.random.default_rng(0)
    shape = arrays[0].shape[:axes]
    sums = np.zeros(shape)
    letters = "abcdefgh"
    for values in arrays:
        weights = rng.standard_normal(values.shape[axes:])
        outer, inner = letters[:axes], letters[axes : values.ndim]
        sums += np.einsum(f"{outer}{inner},{inner}->{outer}", values, weights)
    _, first, keys, counts = np.unique(
        sums.ravel(), return_index=True, return_inverse=True, return_counts=True
    )
    # Equal sums are next to always of equal numbers; those of others are told apart here.
    keys, different = keys.ravel(), [np.empty(0, int)]
    several, example = (counts[keys] > 1).reshape(shape), first[keys].reshape(shape)
    for rows in even(shape[0], max(1, _COMPARED // math.prod(shape[1:]))):
        if several[rows].any():
            differs = np.zeros(several[rows].shape, bool)
            for values in arrays:
                others = values[rows] != values[np.unravel_index(example[rows], shape)]
                if others.any():
                    differs |= others.any(axis=tuple(range(axes, others.ndim)))
            different.append(rows.start * math.prod(shape[1:]) + np.flatnonzero(differs))
    others = np.concatenate(different)
    keys[others] = len(counts) + np.arange(len(others))
    return keys


def combined(*keys: np.ndarray) -> np.ndarray:
    """Return a key that is the same where all of several are; none is negative."""
    total, most = keys[0], int(keys[0].max(initial=0))
    for key in keys[1:]:
        values = int(key.max(initial=0)) + 1
        if (most + 1) * values > _LARGEST:
            total, key = (_numbered(keys) for keys in (total, key))
            most, values = (
                int(keys.max(initial=0)) + more for keys, more in ((total, 0), (key, 1))
            )
        total, most = total * values + key, (most + 1) * values - 1
    return total


def _numbered(keys: np.ndarray) -> np.ndarray:
    """Return keys as small as there are different ones."""
    _, numbers = np.unique(keys, return_inverse=True)
    return numbers.reshape(keys.shape)
