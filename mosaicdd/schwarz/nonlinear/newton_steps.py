"""How Newton's method finds a step: what the derivative asks for, as in a medium."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from mosaicdd.lattice.lattice import Lattice
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.engines import engine_of
from mosaicdd.schwarz.field_share import FieldShare
from mosaicdd.schwarz.nonlinear.newton_equations import NewtonEquations
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopwatch import Stopwatch

_MOST = 200  # iterations of a step


@dataclass(frozen=True)
class Steps:
    """What the steps for all problems of an engine have in common: where, and how."""

    ranks: Ranks
    lattice: Lattice
    place: FieldShare
    settings: SolveSettings
    clock: Stopwatch


@dataclass(frozen=True)
class Change:
    """A change of the values."""

    values: np.ndarray  # at the nodes that this rank owns
    # size, error: root mean squares over the domain: of the change, and what it lacks of that asked
    # for, estimated
    size: float
    error: float
    status: str  # as of an `Outcome`

    def at_nodes(self, place: FieldShare) -> torch.Tensor:
        """Return its absolute values at the lattice nodes that this rank owns."""
        block = place.block
        lattice_nodes = tuple(
            slice(start * block.lattice.spacing - own.start, None, block.lattice.spacing)
            for start, own in zip(block.start, place.own, strict=True)
        )
        owned = tuple(slice(count) for count in block.subdomains)
        return torch.from_numpy(abs(self.values[lattice_nodes][owned]))


class Step(Protocol):
    """Solves for what the derivative at some values asks for."""

    def __call__(self, force: np.ndarray, rtol: float) -> Change | None:
        """Return the change whose product with the derivative is a force.

        `ValueError` on all ranks, if the derivative is that of no elliptic equation.
        ``force``: times the squared spacing, a wide array; ``rtol``: bound of the residual, relative to the force, in
        the 2-norm. Returns None on all ranks, if this is not the way to find it.
        """
        ...


class MediumStep:
    """Solves in the medium that the derivative, or its transposed, is, by multigrid; `ValueError` as `Step`."""

    def __init__(
        self, steps: Steps, equations: NewtonEquations, u: np.ndarray, *, transposed: bool = False
    ):
        self._steps, self._equations = steps, equations
        with steps.clock.part("derivative"):
            self._linear = steps.ranks.agree(lambda: equations.linearised(u, transposed=transposed))

    def __call__(self, force: np.ndarray, rtol: float) -> Change:
        """Solve on the whole grid; see `Step`."""
        steps, grid = self._steps, self._steps.lattice.grid
        linear = self._equations.driven(self._linear, force)
        settings = steps.settings.with_changes(rtol=rtol, certify=None, max_iterations=_MOST)
        engine = engine_of(linear.method)(
            steps.ranks, steps.lattice, linear, settings, clock=steps.clock
        )
        outcome = engine.solve(Boundary.zeros(grid))
        if outcome.field is None:
            raise RuntimeError("a step's field is kept")
        values = outcome.field.double().cpu().numpy()
        # Of all nodes: what changes between the lattice lines may not be seen on them.
        return Change(
            values,
            math.sqrt(steps.place.mean_square(values)),
            outcome.error_estimate.rms,
            "converged_rtol" if outcome.history.residual[-1] <= rtol else outcome.status,
        )
