"""What may call an iteration away: an interrupt, and the clock of its checkpoints.

Each rank hears its own signals; what it hears travels in the reduction that every iteration makes
anyway, so all ranks save, or stop, after the same iteration.
"""

import time
from collections.abc import Callable, Sequence

from mosaicdd.lattice.interface import Interface

Save = Callable[[Interface, object], None]
"""``save(v, history)``, called on all ranks together."""


class Watch:
    """Listens for one rank.

    Parameters
    ----------
    save
        Writes a checkpoint; without it none are kept.
    seconds
        Between two checkpoints.
    """

    def __init__(self, save: Save | None = None, seconds: float = float("inf")):
        self._save = save
        self._seconds = seconds
        self._saved = time.monotonic()
        self._interrupted = False

    def interrupt(self) -> None:
        """Ask for the iteration to stop; may be called by a signal handler."""
        self._interrupted = True

    def calls(self) -> tuple[float, float]:
        """Return, as numbers to add up over the ranks: interrupted, checkpoint due."""
        due = self._save is not None and time.monotonic() - self._saved >= self._seconds
        return float(self._interrupted), float(due)

    def heed(self, called: Sequence[bool], v: Interface, history: object) -> bool:
        """Do what any rank called for; return whether to stop."""
        interrupted, due = called
        if self._save is not None and (interrupted or due):
            self._save(v, history)
            self._saved = time.monotonic()
        return bool(interrupted)
