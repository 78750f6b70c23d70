"""What started this process, by its environment: alone, or one of several by a launcher; and what ends all of them.

The first can be said before, and without, an MPI library; and whether one sees the ranks that were started.

An exception that nothing catches ends one process; MPI lets the others wait. While a solver on several
ranks is open, it ends all of them, after its traceback. Exceptions that are caught are not touched.

What may call long work away, with a checkpoint written first: a signal, and the clock of its checkpoints.

Each rank hears its own signals; what it hears travels in the reduction that every iteration (of a
solve) or step (of a training) makes anyway, so all ranks save, or stop, after the same one.
"""

import array
import fcntl
import os
import signal
import stat
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mpi4py import MPI


_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_SIZE_VARIABLES = {
    "OMPI_COMM_WORLD_SIZE": "Open MPI's mpiexec",
    "MV2_COMM_WORLD_SIZE": "MVAPICH's mpiexec",
    "PMI_SIZE": "mpiexec",
}
_PMI_TYPES = {"MPICH": "pmi2", "MVAPICH": "pmi2", "Intel MPI": "pmi2", "Open MPI": "pmix"}
# Slurm numbers the steps of srun from 0; a batch script and a shell of salloc are steps from here.
_FIRST_STEP_WITHOUT_SRUN = 0xFFFFFFF0
# OpenMP ends in a segmentation fault where stacks of threads find no memory; a few per core are in use.
_THREADS_PER_CORE = 64
_PATIENCE = 1.0  # seconds for a launcher to read what was said; a busy machine's takes milliseconds


@dataclass(frozen=True)
class Launcher:
    """What started this process.

    Parameters
    ----------
    name
        ``"srun"``, an ``mpiexec``, ``"torchrun"``, or ``"none"``.
    ranks
        How many ranks it was asked for.
    """

    name: str = "none"
    ranks: int = 1


def launcher() -> Launcher:
    """Return what started this process, by its environment."""
    tasks = _number("SLURM_STEP_NUM_TASKS") if _in_srun() else None
    if under_torchrun():
        return Launcher("torchrun", _number("WORLD_SIZE") or 1)
    for variable, name in _SIZE_VARIABLES.items():
        if (ranks := _number(variable)) is not None:
            # The innermost counts: mpiexec in a batch job starts one task of srun per machine.
            return Launcher("srun" if ranks == tasks else name, ranks)
    return Launcher() if tasks is None else Launcher("srun", tasks)


def launcher_rank() -> int:
    """Return the rank the launcher gave this process, 0 without one."""
    if under_torchrun():
        return _number("RANK") or 0
    for name in _RANK_VARIABLES:
        if (rank := _number(name)) is not None:
            return rank
    return (_number("SLURM_PROCID") or 0) if _in_srun() else 0


def started_by_launcher() -> bool:
    """Say whether the launcher started this process, and no rank did, which MPI would not take for one.

    False where the system does not say what the parent's environment is.
    """
    if "mpi4py.MPI" in sys.modules:
        return True
    try:
        inherited = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    except PermissionError:  # of another user, as the daemon of a batch system
        return True
    except OSError:
        return False
    names = {entry.partition(b"=")[0].decode(errors="replace") for entry in inherited}
    return names.isdisjoint(_RANK_VARIABLES)


def _in_srun() -> bool:
    """Return whether srun started this process, and not only a batch script or salloc."""
    step = _number("SLURM_STEP_ID")
    return step is not None and step < _FIRST_STEP_WITHOUT_SRUN


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else None


def under_torchrun() -> bool:
    """Return whether torchrun started this process: then its ranks are not MPI's."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def communicator() -> "MPI.Intracomm | None":
    """Return MPI's communicator over all ranks that it sees, None without an MPI library."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        return None
    return MPI.COMM_WORLD


def lonely_ranks(size: int) -> str:
    """Say, for a communicator's size, what is wrong if the launcher's ranks are alone in it.

    Returns
    -------
    str
        One line with the way out; empty if nothing is wrong.
    """
    started = launcher()
    if size > 1 or started.ranks == 1 or started.name == "torchrun":
        return ""
    library, _ = mpi_vendor()
    if started.name == "srun":
        pmi = needed_pmi(library) or "TYPE"
        return (
            f"srun started {started.ranks} tasks, but {library} sees 1 rank in each: they need a PMI "
            f"in common; use srun --mpi={pmi} (srun --mpi=list shows the types that there are)"
        )
    beside = Path(sys.executable).with_name("mpiexec")
    own = beside if beside.exists() else f"the mpiexec of {library}"
    return (
        f"{started.name} started {started.ranks} ranks, but {library} sees 1 rank in each: the "
        f"launcher is another MPI's; use {own}"
    )


def mpi_vendor() -> tuple[str, str]:
    """Return the name and the version of the MPI library."""
    from mpi4py import MPI

    name, numbers = MPI.get_vendor()
    return name, ".".join(map(str, numbers))


def needed_pmi(library: str) -> str | None:
    """Return the ``srun --mpi`` type that an MPI library speaks, if it is known."""
    return _PMI_TYPES.get(library)


def threads_per_rank() -> int:
    """Return the threads of a rank: the first number of ``OMP_NUM_THREADS``, or 1 without one."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, int(first)) if first.isdecimal() else 1


def too_many_threads() -> str:
    """Say why the threads that ``OMP_NUM_THREADS`` asks for are refused; empty where they are not."""
    threads, cores = threads_per_rank(), os.cpu_count() or 1
    if threads <= _THREADS_PER_CORE * cores:
        return ""
    return f"OMP_NUM_THREADS asks for {threads} threads, this machine has {cores} cores: take at most as many"


def abort_all_ranks() -> None:
    """End every rank of the job now: an exception on one alone would leave the others waiting."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    if mpi.COMM_WORLD.size > 1:
        sys.stderr.flush()
        _wait_until_read(2)
        mpi.COMM_WORLD.Abort(1)


def _wait_until_read(descriptor: int) -> None:
    """Wait until what was written to a pipe has been read, but not for long.

    A launcher that ends a job forgets what it has not read of the ranks' output by then.
    """
    left, until = array.array("i", [0]), time.monotonic() + _PATIENCE
    try:
        while stat.S_ISFIFO(os.fstat(descriptor).st_mode) and time.monotonic() < until:
            fcntl.ioctl(descriptor, termios.FIONREAD, left)
            if left[0] == 0:
                return
            time.sleep(1e-3)
    except OSError:  # closed, or of a system that does not tell
        return


_held: set[object] = set()
_before = sys.excepthook


def abort_uncaught(*, several: bool) -> Callable[[], None]:
    """Let what nothing catches end all ranks, if there are several, until what is returned is called."""
    global _before
    if not several:
        return lambda: None
    token = object()
    if not _held:
        _before, sys.excepthook = sys.excepthook, _end
    _held.add(token)

    def release() -> None:
        _held.discard(token)
        if not _held and sys.excepthook is _end:
            sys.excepthook = _before

    return release


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _before(kind, error, trace)
    abort_all_ranks()


class Watch:
    """Listens for one rank.

    Parameters
    ----------
    save
        Writes a checkpoint of the work, which calls it with what is to be kept; without it none are
        kept.
    seconds
        Between two checkpoints.
    interrupts
        When it was asked to stop; shared by the watches of the parts of some work.
    """

    def __init__(
        self,
        save: Callable[..., None] | None = None,
        seconds: float = float("inf"),
        interrupts: list[float] | None = None,
    ):
        self.save = save
        self._seconds = seconds
        self._saved = time.monotonic()
        self._interrupts = [] if interrupts is None else interrupts

    def saving(self, save: Callable[..., None], seconds: float) -> "Watch":
        """Return a watch of a part of the work, which hears the same interrupts and keeps checkpoints by a function."""
        return Watch(save, seconds, self._interrupts)

    def interrupt(self) -> None:
        """Ask for the work to stop; may be called by a signal handler."""
        self._interrupts.append(time.monotonic())

    @property
    def interrupted(self) -> bool:
        """Whether this rank was asked to stop."""
        return bool(self._interrupts)

    def calls(self) -> tuple[float, float]:
        """Return, as numbers to add up over the ranks: stop, save."""
        due = self.save is not None and time.monotonic() - self._saved >= self._seconds
        return float(self.interrupted), float(due)

    def keep(self, *state: Any) -> None:
        """Write a checkpoint of a state, if any are kept."""
        if self.save is not None:
            self.save(*state)
        self.saved()

    def saved(self) -> None:
        """Note that a checkpoint has been written: the clock starts anew."""
        self._saved = time.monotonic()


_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Interruptible(Protocol):
    """Work that may be asked to stop."""

    def interrupt(self) -> None:
        """Ask it to stop; called by a signal handler."""
        ...


@contextmanager
def listening(work: Interruptible, notice: str = "") -> Iterator[None]:
    """Let signals interrupt the work, with a notice on stderr at once; a second one ends the program as usual."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        work.interrupt()
        if notice:
            os.write(sys.stderr.fileno(), f"\n{notice}\n".encode())
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
