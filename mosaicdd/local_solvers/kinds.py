"""Which of many things are alike, so that one operator serves all of them.

Elements with the same conductances have the same Schur complement; subdomains with the same elements the
same inverse. Where coefficients are constant, almost all are of one kind, and along straight sides of a
handful; where an outline cuts, or coefficients vary, each is of its own. What many have in common is
applied by one matrix product to all of them; the rest by one product each.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mosaicdd.lattice.axes import even

_MANY = 32  # members of a kind from which on a product with all of them pays
_COMPARED = 1024  # members at a time, for the cache


@dataclass(frozen=True)
class Piece:
    """Members that are handled at once, and their operators: one for all of them, or one for each.

    Parameters
    ----------
    members
        Where they stand in the order of `Kinds`.
    operators
        The numbers of their operators.
    shared
        Whether they have but one.
    """

    members: slice
    operators: slice
    shared: bool


class Kinds:
    """Members in the order of their kinds: those that many have, then those with an operator each.

    Parameters
    ----------
    keys
        ``(E,)``; members that are alike have the same.

    Attributes
    ----------
    keys
        ``(E,)``, as they were given, counted from 0.
    order
        ``(E,)``, the numbers of the members in that order; of those with an operator each, ascending.
    shared
        Where in the order the members of each kind stand that shares its operator.
    own
        Where those stand that have an operator each.
    operator
        ``(E,)``, the number of each member's operator: of kinds first, then of `own` in their order.
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
        common = common[np.argsort(first[common])]
        shared = np.full(len(counts), len(common))
        shared[common] = np.arange(len(common))
        self.operator = shared[kind]
        self.order = np.argsort(self.operator, kind="stable")
        ends = np.cumsum([0, *counts[common]]).tolist()
        self.shared = [slice(a, b) for a, b in itertools.pairwise(ends)]
        self.own = slice(ends[-1], len(keys))
        alone = self.order[self.own]
        self.operator[alone] = len(common) + np.arange(len(alone))
        self.examples = np.concatenate([first[common], alone])
        self._kinds = np.concatenate([common, kind[alone]])  # of the operators
        self.idle: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.order)

    def leave_out(self, empty: Callable[[int], bool]) -> None:
        """Let those be idle whose examples are empty."""
        shared = enumerate(self.examples[: len(self.shared)].tolist())
        self.idle = frozenset(number for number, member in shared if empty(member))

    def pieces(self, shared: int, own: int) -> list[Piece]:
        """Cut the order into pieces of at most so many members with one operator, or with one each.

        Without those that are idle.
        """
        found = []
        for number, kind in enumerate(self.shared):
            if number in self.idle:
                continue
            for part in even(kind.stop - kind.start, shared):
                members = slice(kind.start + part.start, kind.start + part.stop)
                found.append(Piece(members, slice(number, number + 1), shared=True))
        first, start = len(self.shared), self.own.start
        for part in even(self.own.stop - start, own):
            members = slice(start + part.start, start + part.stop)
            found.append(Piece(members, slice(first + part.start, first + part.stop), shared=False))
        return found

    def made(self, size: int) -> list[tuple[np.ndarray, np.ndarray | slice, np.ndarray | slice]]:
        """Say how all operators are made, so many different ones at a time.

        Returns
        -------
        list
            Members that have those made at once; the numbers of all operators that are like one of them,
            and like which.
        """
        _, first, like = np.unique(self._kinds, return_index=True, return_inverse=True)
        if len(first) == self.operators:
            parts = even(self.operators, size)
            return [(self.examples[part], part, slice(None)) for part in parts]
        rank = np.argsort(np.argsort(first))  # in the order of their first operators
        first, like = np.sort(first), rank[like]
        order = np.argsort(like, kind="stable")
        found: list[tuple[np.ndarray, np.ndarray | slice, np.ndarray | slice]] = []
        for part in even(len(first), size):
            low, high = np.searchsorted(like[order], (part.start, part.stop))
            numbers = order[low:high]
            found.append((self.examples[first[part]], numbers, like[numbers] - part.start))
        return found

    @property
    def operators(self) -> int:
        """How many different operators there are."""
        return len(self.examples)

    @property
    def all_own(self) -> bool:
        """Whether nothing is shared, so that the order is that of the members."""
        return not self.shared


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
    keys = keys.ravel()
    # Equal sums are next to always of equal numbers; those of others are told apart here.
    repeated = np.flatnonzero(counts[keys] > 1)
    different = []
    for members in np.array_split(repeated, -(-len(repeated) // _COMPARED) or 1):
        same = np.ones(len(members), bool)
        for values in arrays:
            here = values[np.unravel_index(members, shape)]
            example = values[np.unravel_index(first[keys[members]], shape)]
            same &= (here == example).all(axis=tuple(range(1, here.ndim)))
        different.append(members[~same])
    others = np.concatenate(different)
    keys[others] = len(counts) + np.arange(len(others))
    return keys


def combined(*keys: np.ndarray) -> np.ndarray:
    """Return a key that is the same where all of several are."""
    total = keys[0]
    for one in keys[1:]:
        _, total = np.unique(total * (int(one.max(initial=0)) + 1) + one, return_inverse=True)
    return total
