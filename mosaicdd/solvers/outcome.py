"""What the engine returns of a problem, on every rank."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from mosaicdd.axes import Slices
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.solvers.settings import CONVERGED
from mosaicdd.solvers.stopping import History
from mosaicdd.solvers.verdict import Certificate

ERROR_STEP = {2: 16, 3: 8}


"""Of how many nodes along each axis one has an estimate where there is no lattice, by the number of axes."""


@dataclass(frozen=True)
class ErrorEstimate:
    """An estimated distance to the discrete solution.

    Parameters
    ----------
    rms
        Root mean square over the domain.
    interface
        Its part that is seen on the interface; the rest is of the fill along the edge.
    nodes
        Absolute values at this rank's lattice nodes, or of some nodes of the grid, see `ERROR_STEP`; ``place`` says where these belong
        among all of these.
    energy
        Bound for the energy norm, ``e . A e`` times the squared spacing under a root, where the method
        has one.
    """

    rms: float
    interface: float
    nodes: torch.Tensor
    place: Slices
    energy: float | None = None

    def times(self, factor: float) -> "ErrorEstimate":
        """Return the estimate whose distances are multiplied."""
        return dataclasses.replace(
            self,
            rms=factor * self.rms,
            interface=factor * self.interface,
            nodes=factor * self.nodes,
            energy=None if self.energy is None else factor * self.energy,
        )


@dataclass(frozen=True)
class Outcome:
    """How a problem ended, on every rank.

    Parameters
    ----------
    status
        One of ``converged_rtol``, ``converged_atol``, ``converged_rounding``,
        ``diverged_max_iterations``, ``diverged_tolerance``, ``diverged_nan``, ``interrupted``,
        ``stagnated``: as `verdict` has it.
    update, residual
        Root mean square over the interface of the last change, and of ``T v - v`` at the result.
        On the lattice lines, the field is ``T v``; None of a method on the whole grid.
    size
        Root mean square of the values over the interface.
    discrete_residual
        Relative residual of the discrete equation, ``|A u| / |b|``, in the 2-norm. Like ``residual``
        it is measured on the field, and None where not all of that was filled.
    rounding
        What float64's rounding alone leaves of it at least, ``eps |A| |u| / |b|``; None where that was not needed for
        the status.
    imbalance
        Where no value is given on any side, what flows in but not out, relative to all that flows.
    error_estimate
        Distance to the discrete solution, the local solver's own error included.
    certificate
        In certified mode, how the result was certified.
    outside
        Owned subdomains, ``(rows, columns)``, whose data are outside of the training range; None if
        the local solver has no such range. ``error_estimate.place`` says where they belong.
    interface, field
        This rank's interface, and its part of the field, ``(rows, columns)``, unless it went to a
        sink or was not wanted; ``place`` says where that belongs.
    layout
        How the field of the whole domain lies over the ranks.
    seconds
        Of this rank: ``iterate``, ``estimate`` and ``assemble``; of several problems, for all.
    failure
        Why it ended, where more is known than the status says.
    """

    status: str
    update: float
    size: float
    discrete_residual: float | None
    error_estimate: ErrorEstimate
    history: History
    place: Slices
    layout: Layout
    seconds: dict[str, float]
    residual: float | None = None
    rounding: float | None = None
    imbalance: float | None = None
    failure: str | None = None
    certificate: Certificate | None = None
    outside: torch.Tensor | None = None
    field: torch.Tensor | None = None
    interface: Any = None

    @property
    def converged(self) -> bool:
        """Whether the stopping rule was met."""
        return self.status in CONVERGED

    @property
    def iterations(self) -> int:
        """Iterations done, those of a certificate included."""
        return len(self.history.update)

    @property
    def sweeps(self) -> int:
        """Sweeps done in these iterations: one in each."""
        return self.iterations
