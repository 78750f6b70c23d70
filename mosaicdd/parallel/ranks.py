"""The ranks of a job: the one object that knows about them.

Everything else receives it and is written as if serial; with one rank it is the same code, and no
MPI library is needed. It is made from a communicator, whose duplicate carries all messages, so that
they cannot meet those of the program around; `Ranks.close` gives it back.

How long a communicator lives, and what stands for one where there is a single rank.

Groups of ranks that work side by side, each on its own share of many problems.
"""

import copy
import math
import pickle
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np

from mosaicdd.axes import times
from mosaicdd.parallel.partition import (
    Cuts,
    Dims,
    balanced_cuts,
    fitting_dims,
    require_fitting,
    share,
)

if TYPE_CHECKING:
    from mpi4py import MPI


class Closable(Protocol):
    """What is freed when the ranks are."""

    def close(self) -> None:
        """Free it; a second time nothing is done."""
        ...


class CommunicatorLifetime:
    """A communicator and what was made through it, until it is closed."""

    def __init__(self, comm: "MPI.Comm | SerialComm", *, owned: bool):
        self._comm: MPI.Comm | SerialComm | None = comm
        self._owned = owned
        self.made: weakref.WeakKeyDictionary[Closable, None] = (
            weakref.WeakKeyDictionary()  # in order: communicators are freed together
        )
        self.parts: list[CommunicatorLifetime] = []
        self.machine: CommunicatorLifetime | None = None  # one of the parts

    @property
    def comm(self) -> "MPI.Comm | SerialComm":
        """The communicator; `RuntimeError` if it has been closed."""
        if self._comm is None:
            raise RuntimeError("these ranks have been closed; make new ones by Ranks.of")
        return self._comm

    def close(self) -> None:
        """Free what was made, in order, and the communicator if it is owned; again, do nothing."""
        for made in list(self.made):
            made.close()
        for part in self.parts:
            part.close()
        if self._owned and self._comm is not None and not isinstance(self._comm, SerialComm):
            self._comm.Free()
        self._comm = None


class SerialComm:
    """The communicator of a single rank: what `Ranks` asks of one, without an MPI library."""

    rank, size = 0, 1

    def Allreduce(self, values: np.ndarray, total: np.ndarray) -> None:  # noqa: N802 - MPI's name
        """Fill ``total`` with the sum over all ranks."""
        total[...] = values

    def Barrier(self) -> None:  # noqa: N802 - MPI's name
        """Wait for nobody."""

    def bcast(self, value: Any) -> Any:
        """Return what rank 0 has."""
        return value

    def gather(self, value: Any) -> list:
        """Return what all ranks have."""
        return [value]

    allgather = gather


Result = TypeVar("Result")
_UNLIMITED = 2**62  # items per axis: of dims that nothing is known about, the squarest


class Ranks:
    """The ranks of a communicator as a Cartesian grid, rows first.

    Made by `of` and `alone`. On four ranks with dims (2, 2) and counts (3, 5), `partition` gives

    ```
       rank 2: (2..3, 0..3)   rank 3: (2..3, 3..5)
       rank 0: (0..2, 0..3)   rank 1: (0..2, 3..5)
    ```

    Its methods are called by all ranks together, but for `partition`, `share` and `neighbour`,
    which send nothing.

    Attributes
    ----------
    size, rank
        Number of ranks, and of this one.
    dims, coords
        Ranks per axis, and the place of this one, (y, x) in the plane.
    is_root
        Whether this rank speaks and writes for all.
    cuts
        Where `partition` cuts; None if evenly.
    """

    def __init__(self, life: "CommunicatorLifetime", dims: Dims | None, *, offered: bool = False):
        self._life = life
        self.size, self.rank = life.comm.size, life.comm.rank
        self.is_root = self.rank == 0
        self._given, self._offered = dims, offered
        self.cuts: Cuts | None = None
        self._place(dims or fitting_dims(self.size, (_UNLIMITED, _UNLIMITED))[0])

    @classmethod
    def alone(cls) -> Self:
        """Return this process as the only rank."""
        return cls(CommunicatorLifetime(SerialComm(), owned=False), None)

    @classmethod
    def of(
        cls, comm: "MPI.Intracomm | Ranks | None" = None, dims: Sequence[int] | None = None
    ) -> Self:
        """Return the ranks of a communicator; called by all of them.

        Parameters
        ----------
        comm
            A communicator, which is duplicated; of a Cartesian one with as many axes as what is
            shared the dims are taken, too. None: this process alone. `Ranks`: the same ones, without a duplicate; what
            is made through the result is freed when either is closed.
        dims
            Ranks per axis, (y, x). By default `fitted` chooses them for what they shall share.

        Raises
        ------
        TypeError
            If it is no communicator.
        ValueError
            If the dims do not multiply to the number of ranks, or this rank is not among them.
        """
        if comm is None:
            comm = cls.alone()
        if isinstance(comm, Ranks):
            offered: Sequence[int] | None = comm._given
            only_offered = comm._offered
        elif not comm:
            raise ValueError("this rank is not in the communicator, which is MPI.COMM_NULL here")
        elif not hasattr(comm, "Create_cart"):
            raise TypeError(
                "ranks must be an intracommunicator of mpi4py, Ranks or None, got "
                f"{type(comm).__name__}"
            )
        else:
            offered = tuple(getattr(comm, "dims", ())) or None  # of a Cartesian communicator
            only_offered = True
        only_offered = only_offered and dims is None
        wanted = _fitting(offered if dims is None else dims, comm.size)
        if isinstance(comm, Ranks):
            life = CommunicatorLifetime(comm._life.comm, owned=False)
            comm.keep(life)
        else:
            several = comm.size > 1
            life = CommunicatorLifetime(comm.Dup() if several else SerialComm(), owned=several)
        return cls(life, wanted, offered=only_offered)

    def _place(self, dims: Dims) -> None:
        self.dims = dims
        self.coords = self._coords_of(self.rank)

    def _coords_of(self, rank: int) -> Dims:
        return tuple(map(int, np.unravel_index(rank, self.dims)))

    def fitted(self, counts: Dims, cuts: Cuts | None = None) -> Self:
        """Return these ranks on the dims with the shortest block edges, or on those that were given.

        Parameters
        ----------
        counts
            Items to share per axis, (y, x).
        cuts
            Where the items are cut; by default evenly.

        Raises
        ------
        ValueError
            If no dims fit, or not the given ones.
        """
        if cuts is None and (dims := self._dims_for(len(counts))):
            require_fitting(dims, counts)
            return self
        fitted = copy.copy(self)
        fitted.cuts = cuts
        fitted._place(fitting_dims(self.size, counts)[0] if cuts is None else cuts.dims)
        return fitted

    def balanced(self, loads: np.ndarray) -> Cuts:
        """Return where to cut, so that these ranks have equal loads, as `balanced_cuts` does."""
        return balanced_cuts(loads, self.size, self._dims_for(loads.ndim))

    def _dims_for(self, axes: int) -> Dims | None:
        """Return the dims that were given, those of a communicator if it has as many axes."""
        fit = self._given is not None and (not self._offered or len(self._given) == axes)
        return self._given if fit else None

    @property
    def comm(self) -> "MPI.Comm":
        """The communicator, for messages between several ranks.

        Raises
        ------
        RuntimeError
            If the ranks have been closed, or there is only this one.
        """
        comm = self._life.comm
        if isinstance(comm, SerialComm):
            raise RuntimeError(  # noqa: TRY004 - nothing was given that has a wrong type
                "a single rank has nobody to send to, and no communicator"
            )
        return comm

    def close(self) -> None:
        """Free what was made through these ranks, and their communicator if it was."""
        self._life.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        # After an error on one rank the others may be elsewhere: then the end of the job frees it.
        if failure[0] is None:
            self.close()

    def keep(self, made: "Closable") -> None:
        """Let ``made.close()`` be called when the ranks are closed, if it is still in use then."""
        self._life.made[made] = None

    def split(self, group: int) -> Self:
        """Return the ranks that name the same group, which close with these."""
        comm = SerialComm() if self.size == 1 else self.comm.Split(group, self.rank)
        life = CommunicatorLifetime(comm, owned=self.size > 1)
        self._life.parts.append(life)
        return type(self)(life, None)

    def machine(self) -> Self:
        """Return the ranks of this one's machine, which close with these; called by all ranks."""
        if self.size == 1:
            return self
        if self._life.machine is None:
            from mpi4py import MPI

            life = CommunicatorLifetime(
                self.comm.Split_type(MPI.COMM_TYPE_SHARED, self.rank), owned=True
            )
            self._life.machine = life
            self._life.parts.append(life)
        return type(self)(self._life.machine, None)

    def share(self, count: int, rank: int | None = None) -> range:
        """Return a rank's share of ``count`` items, by default this one's; the first get one more."""
        return range(*share(count, self.size, self.rank if rank is None else rank))

    def partition(self, counts: Dims, rank: int | None = None) -> tuple[Dims, Dims]:
        """Return start and stop per axis of a rank's share, by default of this one.

        The first ranks of an axis get one item more where it does not divide, unless there are `cuts`.

        Raises
        ------
        ValueError
            If an axis has fewer items than ranks, or not those that were cut.
        """
        coords = self.coords if rank is None else self._coords_of(rank)
        if self.cuts is not None:
            if counts != self.cuts.counts:
                raise ValueError(f"{self.cuts.counts} items were cut, not {counts}")
            ends = [cuts[c : c + 2] for cuts, c in zip(self.cuts.axes, coords, strict=True)]
        else:
            require_fitting(self.dims, counts)
            ends = list(map(share, counts, self.dims, coords))
        start, stop = zip(*ends, strict=True)
        return start, stop

    def neighbour(self, direction: Dims, periodic: tuple[bool, ...] = ()) -> int | None:
        """Return the rank in a direction ``(dy, dx)``, or None beyond the edge.

        Along a periodic axis there is none; a single rank there is its own neighbour.
        """
        rank = 0
        around = periodic or (False,) * len(self.dims)
        for c, d, count, wraps in zip(self.coords, direction, self.dims, around, strict=True):
            place = (c + d) % count if wraps else c + d
            if not 0 <= place < count:
                return None
            rank = rank * count + place
        return rank

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Add up a small array of floats over all ranks; NaN anywhere is NaN everywhere.

        Whole numbers are floats here: beside floats of another rank MPI would take their bits for those of floats.
        """
        if values.dtype.kind in "biu":
            values = values.astype(float)
        total = np.empty_like(values)
        self._life.comm.Allreduce(values, total)
        return total

    def any(self, here: bool) -> bool:
        """Say whether something is so on any rank."""
        return any(self.allgather(here))

    def largest(self, value: float) -> float:
        """Return the largest of all ranks' numbers."""
        return max(self.allgather(value))

    def allgather(self, value: Any) -> list:
        """Return the values of all ranks, small objects, in their order."""
        return self._life.comm.allgather(value)

    def gather(self, value: Any) -> list | None:
        """Return the values of all ranks on the root, None on the others."""
        return self._life.comm.gather(value)

    def bcast(self, value: Any) -> Any:
        """Return the root's value, a small object."""
        return self._life.comm.bcast(value)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._life.comm.Barrier()

    def on_root(self, function: Callable[[], Result]) -> Result:
        """Call a function on the root and return its (small) result, or raise its error, on all."""
        return self.bcast(self.run_on_all(lambda: function() if self.is_root else None))

    def only_root(self, function: Callable[[], object]) -> None:
        """Call a function on the root; its error is raised on all."""
        self.run_on_all(lambda: function() if self.is_root else None)

    @contextmanager
    def held_by_root(
        self, open_it: Callable[[], AbstractContextManager[Result]]
    ) -> Iterator[Result | None]:
        """Enter a context on the root, as of a file to write, and leave it; errors are raised on all.

        Its value is given to the root, None to the others.
        """
        held = ExitStack()
        opened: list[Result] = []
        self.run_on_all(
            lambda: opened.append(held.enter_context(open_it())) if self.is_root else None
        )
        try:
            yield opened[0] if opened else None
        except BaseException as error:
            close = partial(held.__exit__, type(error), error, error.__traceback__)
            if vars(error).get("of_ranks") == self.size:  # all are here: what the root makes of it
                self.run_on_all(close)
            else:
                close()
            raise
        self.run_on_all(held.close)

    def run_on_all(self, function: Callable[[], Result]) -> Result:
        """Call a function on every rank; if it raises on one, the first error is raised on all."""
        return agreed(function, self.allgather)


def agreed(function: Callable[[], Result], allgather: Callable[[object], Sequence]) -> Result:
    """Call a function on every rank; if it raises on one, the first error, by an all-gather, is raised on all."""
    error: Exception | None = None
    try:
        result = function()
    except Exception as caught:  # noqa: BLE001 - raised again below, on every rank
        error = _sendable(caught)
    errors = allgather(error)
    first = next((e for e in errors if e is not None), None)
    if first is not None:
        vars(first)["of_ranks"] = len(errors)  # one may speak for them
        raise first
    return result


def _sendable(error: Exception) -> Exception:
    """Return an error that other ranks can be sent: itself, or what it says by a type of Python's own.

    One that pickle does not take would leave the others waiting, and some of users' own it takes, but
    cannot make again.
    """
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever a class of a user's own may do
        own = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
        text = f"{type(error).__name__}: {error}"
        try:
            return own(text).with_traceback(error.__traceback__)
        except TypeError:
            return RuntimeError(text).with_traceback(error.__traceback__)
    return error


def _fitting(dims: Sequence[int] | None, size: int) -> Dims | None:
    """Return dims, if any are given, which multiply to the number of ranks."""
    if dims is None:
        return None
    if min(dims, default=0) < 1 or math.prod(dims) != size:
        raise ValueError(f"dims {times(dims)} need {math.prod(dims)} ranks, there are {size}")
    return tuple(dims)


class Replicas:
    """The ranks, split into groups of equal size: ``world = count x dims``.

    Six ranks in three groups, with five problems:

    ```
       group 0: ranks 0, 1, problems 0, 1
       group 1: ranks 2, 3, problems 2, 3
       group 2: ranks 4, 5, problem 4
    ```

    `ValueError` if the ranks do not split into groups of equal size, or of these dims.

    Parameters
    ----------
    world
        All ranks; what is made here closes with them.
    count
        Number of groups.
    dims
        Ranks per axis of a group, if they are given.

    Attributes
    ----------
    ranks
        Those of this rank's group.
    index
        Its number.
    """

    def __init__(self, world: Ranks, count: int, dims: Dims | None = None):
        if count < 1 or world.size % count:
            raise ValueError(
                f"replicas={count} must divide the number of ranks, there are {world.size}"
            )
        needed = count * math.prod(dims or ())
        if count > 1 and dims is not None and needed != world.size:
            raise ValueError(
                f"replicas={count} with dims {times(dims)} need {needed} ranks, there are {world.size}"
            )
        self.world = world
        self.count = count
        self.index = world.rank // (world.size // count)
        self.ranks = Ranks.of(world if count == 1 else world.split(self.index), dims)

    def share(self, items: int, index: int | None = None) -> range:
        """Return the items of a group, by default of this one; the first groups get one more."""
        return range(*share(items, self.count, self.index if index is None else index))
