"""When an iteration stops, and with which status. All numbers are reduced over the ranks at once.

``update`` is the root mean square of the change by one iteration over the interface, ``size``
that of the values. NaN on one rank travels in the same sum, so all ranks leave together.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.parallel.process_grid import ProcessGrid
from mosaicdd.parallel.watch import Watch

CONVERGED = ("converged_rtol", "converged_atol")
_PATIENCE = 50  # iterations without a smaller update before an iteration counts as stagnated
_BLOW_UP = 1e6  # growth of the update over the smallest so far that counts as divergence


@dataclass(frozen=True)
class StoppingRule:
    """Stop when the update is at most ``rtol`` times the size, or ``atol``.

    With ``mae``, the only aim is a mean absolute error on the interface against a reference (the
    paper's way to stop).

    Raises
    ------
    ValueError
        If a tolerance is negative or the number of iterations not positive.
    """

    rtol: float = 1e-8
    atol: float = 0.0
    max_iterations: int = 100
    mae: float | None = None

    def __post_init__(self):
        for name in ("rtol", "atol", "mae"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < np.inf:
                raise ValueError(f"{name} must be a number >= 0, got {value}")
        if self.max_iterations < 1:
            raise ValueError(f"max_iterations must be at least 1, got {self.max_iterations}")

    def reached(self, update: float, size: float, mae: float) -> str | None:
        """Return the status of an iteration that has converged, else None."""
        if self.mae is not None:
            return "converged_atol" if mae <= self.mae else None
        if update <= self.rtol * size < np.inf:
            return "converged_rtol"
        return "converged_atol" if update <= self.atol else None


@dataclass
class History:
    """One entry per iteration; NaN where a number was not measured.

    Parameters
    ----------
    update
        Root mean square of the change over the interface.
    residual
        Root mean square of ``T v - v`` over the lattice nodes, before the iteration; not in the
        inner iterations of GMRES.
    mae
        Mean absolute error over the interface, with a reference.
    seconds
        Since the start of the iteration.
    """

    update: list[float] = field(default_factory=list)
    residual: list[float] = field(default_factory=list)
    mae: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def followed_by(self, other: "History") -> "History":
        """Return this history and another that began when it ended."""
        begin = self.seconds[-1] if self.seconds else 0.0
        later = [begin + seconds for seconds in other.seconds]
        return History(
            self.update + other.update,
            self.residual + other.residual,
            self.mae + other.mae,
            self.seconds + later,
        )


class Monitor:
    """Measures iterations and decides when to stop, the same on all ranks.

    Parameters
    ----------
    v
        An interface of the block, for shapes.
    reference
        The true interface, for a rule with ``mae``.
    progress
        ``progress(iteration, update, size, mae)``, called after every iteration.
    watch
        What may interrupt the iteration, and keeps checkpoints of it.
    """

    def __init__(
        self,
        grid: ProcessGrid,
        rule: StoppingRule,
        v: Interface,
        *,
        reference: Interface | None = None,
        progress=None,
        watch: Watch | None = None,
    ):
        self._grid = grid
        self.rule = rule
        self._reference = reference
        self._progress = progress
        self._watch = watch or Watch()
        self.owned = v.ownership().flat
        lattice = v.block.lattice
        self._unknowns, self._nodes = lattice.unknowns, math.prod(lattice.subdomains)
        self._scratch = torch.empty_like(v.flat)
        self._start = time.perf_counter()
        self.history = History()
        self.size = 0.0

    @property
    def iterations(self) -> int:
        """Iterations so far."""
        return len(self.history.update)

    @property
    def remaining(self) -> int:
        """Iterations left."""
        return self.rule.max_iterations - self.iterations

    def mean(self, *values: torch.Tensor, host: Sequence[float] = ()) -> np.ndarray:
        """Add up values of all ranks, one after another in one array, per interface node.

        Numbers that are on the host already come first.
        """
        device = torch.cat([v.reshape(-1).double() for v in values]).cpu().numpy()
        mine = np.concatenate([np.asarray(host, dtype=float), device])
        return self._grid.sum(mine) / self._unknowns

    def distance(self, one: Interface, other: Interface) -> float:
        """Return the root mean square of a difference over the interface."""
        difference = torch.sub(one.flat, other.flat, out=self._scratch).mul_(self.owned)
        return float(np.sqrt(self.mean(torch.dot(difference, difference))[0]))

    def record(self, old: Interface, new: Interface, residual: torch.Tensor) -> str | None:
        """Measure the iteration from ``old`` to ``new``; return its status if it is the last.

        Parameters
        ----------
        residual
            ``R (T v - v)`` at the owned lattice nodes, ``v`` the old values.
        """
        (update, self.size, residual, mae), called = self._measure(old, new, residual)
        status = self.rule.reached(update, self.size, mae)
        status = self._enter(update, residual, mae, status)
        interrupted, due = called
        if self._watch.save is not None and (interrupted or due):
            self._watch.save(new, self.history)
            self._watch.saved()
        return status or ("interrupted" if interrupted else None)

    def predict(self, update: float) -> str | None:
        """Enter an iteration whose update is known without measuring it."""
        return self._enter(update, np.nan, np.nan, None)

    def _enter(self, update: float, residual: float, mae: float, status: str | None) -> str | None:
        history = self.history
        history.update.append(float(update))
        history.residual.append(float(residual))
        history.mae.append(float(mae))
        history.seconds.append(time.perf_counter() - self._start)
        if self._progress is not None:
            self._progress(self.iterations, float(update), float(self.size), float(mae))
        return status or self._cannot_go_on()

    def _cannot_go_on(self) -> str | None:
        updates = self.history.update
        if not np.isfinite(updates[-1]):
            return "diverged_nan"
        if updates[-1] > _BLOW_UP * min(updates):
            return "diverged_tolerance"
        if self.remaining <= 0:
            return "diverged_max_iterations"
        if self.iterations - int(np.argmin(updates)) > _PATIENCE:
            return "stagnated"
        return None

    def _measure(self, old: Interface, new: Interface, residual: torch.Tensor):
        """Return update, size and residual as root mean squares, the MAE, and the watch's calls."""
        scratch = torch.sub(new.flat, old.flat, out=self._scratch).mul_(self.owned)
        parts = [torch.dot(scratch, scratch)]
        torch.mul(new.flat, self.owned, out=scratch)
        parts.append(torch.dot(scratch, scratch))
        parts.append(residual.square().sum() * (self._unknowns / self._nodes))
        if self._reference is not None:
            torch.sub(new.flat, self._reference.flat, out=scratch).mul_(self.owned)
            parts.append(scratch.abs_().sum())
        means = self.mean(*parts, host=self._watch.calls())
        called, means = means[:2] > 0, means[2:]
        mae = means[3] if self._reference is not None else np.nan
        return np.append(np.sqrt(means[:3]), mae), called
