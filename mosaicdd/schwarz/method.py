"""The two-level Schwarz method on a block: its iteration, and the fill of its result.

How fast the two-level iteration converges for an operator, and what follows from it.

The eigenvalues of the iteration with the exact local solver are measured once per operator, by a few
steps of Arnoldi's method on a small lattice: they do not depend on the domain's size. From them come
the number of coarse nodes, the way to drive the iteration, its relaxation factors, and how much of an
error one iteration sees.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from mosaicdd.grid.grid import Grid
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.schwarz.block import Block, Lattice
from mosaicdd.schwarz.coarse_space import CoarseSpace
from mosaicdd.schwarz.drivers import chebyshev_factors
from mosaicdd.schwarz.fill import FILL_HALO, InteriorReconstruction
from mosaicdd.schwarz.fixed_point import FixedPoint, Iteration, UpdateSums
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.local_solvers.bound import BlockPlan, SharedSolver
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.sweep import Sweep, SweepContext, interface_exchange
from mosaicdd.schwarz.transfer import Batch
from mosaicdd.solvers.settings import SolveSettings

_LATTICE = 8  # lattice cells along a side of the small lattice
_STEPS = 12  # of Arnoldi's method, which finds the outermost eigenvalues first
_CYCLE = 3  # relaxed steps after a plain one
_SLOW = 0.18  # contraction per iteration above which the cycle is not worth it (Laplace: 0.14)
_FLOW = 4.0  # Peclet number of a subdomain above which eigenvalues say little
_LARGEST = 0.998  # eigenvalue that is reckoned with
_SLOW_LATTICE, _SLOW_STEPS = 24, 30  # where it takes longer walks to see the slowest errors
_FINER = 2  # coarse nodes per lattice cell where one is too few
_SAFETY = 1.5  # of an error estimate: on larger lattices eigenvalues are a little larger
# Laplace's, as `measure_spectrum` finds it on larger lattices, where errors below -0.1 hardly occur;
# measured anew by a test.
_LAPLACE = {2: (-0.1, 0.23), 3: (-0.09, 0.39)}  # by the number of axes
# rho = 1/3, in space 1/2: single errors of a network fade by up to 0.25 (in space 0.4) per iteration
_LAPLACE_SAFETY = {2: 1.5, 3: 2.0}


@dataclass(frozen=True)
class Scheme:
    """The drive of an operator's two-level iteration: coarse nodes, acceleration, relaxation."""

    points: int  # coarse nodes per lattice cell along a line
    acceleration: str  # ``"chebyshev"`` or ``"gmres"``: what drives it best in float64
    factors: tuple[float, ...]  # relaxation factors of the Chebyshev cycle
    # ``1 / (1 - rho)``, and a margin: the error is at most so many times the update of one
    # iteration
    safety: float


def scheme_of(
    operator: EllipticOperator, subdomain: Subdomain, points: int | None = None
) -> Scheme:
    """Return the scheme for an operator on subdomains of this kind; measured once per process.

    ``points``: coarse nodes per lattice cell along a line; by default as many as the spectrum asks for.
    """
    if operator.symmetric and operator.scale_free and points in (None, 1):
        factors = _cycle(*_LAPLACE[subdomain.axes])
        return Scheme(1, "chebyshev", factors, _LAPLACE_SAFETY[subdomain.axes])
    return _measured(operator, subdomain, points)


@lru_cache(maxsize=64)
def _measured(operator: EllipticOperator, subdomain: Subdomain, points: int | None) -> Scheme:
    eigenvalues = measure_spectrum(operator, subdomain, points or 1)
    factors = _cycle(eigenvalues.real.min(), min(eigenvalues.real.max(), _LARGEST))
    damped = np.prod([1 - omega * (1 - eigenvalues) for omega in factors], axis=0)
    peclet = np.hypot(operator.by, operator.bx) * subdomain.size / min(operator.ayy, operator.axx)
    fast = np.abs(damped).max() ** (1 / len(factors)) <= _SLOW and peclet <= _FLOW
    if fast or subdomain.axes > 2:  # in space there are no finer coarse spaces
        return Scheme(points or 1, "chebyshev", factors, _safety(eigenvalues))
    points = points or _FINER
    longer = {"cells": _SLOW_LATTICE, "steps": _SLOW_STEPS}
    eigenvalues = measure_spectrum(operator, subdomain, points, **longer)
    factors = _cycle(eigenvalues.real.min(), min(eigenvalues.real.max(), _LARGEST))
    return Scheme(points, "gmres", factors, _safety(eigenvalues))


def _cycle(low: float, high: float) -> tuple[float, ...]:
    """Return the relaxation factors: a plain step, which removes the coarse space's part, then Chebyshev's."""
    return (1.0, *chebyshev_factors(low, high, _CYCLE))


def _safety(eigenvalues: np.ndarray) -> float:
    return _SAFETY / (1 - min(np.abs(eigenvalues).max(), _LARGEST))


def measure_spectrum(
    operator: EllipticOperator,
    subdomain: Subdomain,
    points: int,
    *,
    cells: int = _LATTICE,
    steps: int = _STEPS,
) -> np.ndarray:
    """Return Ritz values of the two-level iteration on a lattice of ``cells`` x ``cells``.

    ``points``: coarse nodes per lattice cell along a line; ``steps``: of Arnoldi's method, from random values.
    """
    side = cells * subdomain.cells // 2
    lattice = Lattice(Grid((side,) * subdomain.axes, subdomain.spacing), subdomain)
    block = Block.whole(lattice)
    task = SweepContext(Ranks.alone().fitted(lattice.subdomains), block, SolveSettings())
    iterate = plan_iteration(task, ExactSolver(operator, subdomain), points)
    image = Interface(block, **task.tensors)
    owned = image.ownership().flat
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(len(owned), generator=generator, dtype=owned.dtype) * owned
    image.like(vector).match_copies()
    basis, hessenberg = [], np.zeros((steps + 1, steps))
    norm = _norm(vector, owned)
    for k in range(steps):
        basis.append(vector / norm)
        iterate(image.like(basis[k]), image)
        vector = image.flat.clone()
        for _ in range(2):
            for j, other in enumerate(basis):
                part = float(torch.dot(vector * owned, other))
                hessenberg[j, k] += part
                vector -= part * other
        norm = hessenberg[k + 1, k] = _norm(vector, owned)
        if norm < 1e-10:
            return np.linalg.eigvals(hessenberg[: k + 1, : k + 1])
    return np.linalg.eigvals(hessenberg[:steps])


def _norm(vector: torch.Tensor, owned: torch.Tensor) -> float:
    return float((vector * owned).norm())


class PhaseIteration(Iteration):
    """The paper's multiplicative sweep (section 4.2): four phases of disjoint subdomains, in space eight.

    Each is solved from the newest values; then the ranks agree on what they computed in common.

    With ``settings.sync`` ``"phase"``, ranks exchange after each phase, and the result does not
    depend on the process grid; with ``"iteration"``, once after all four, the paper's relaxation:
    where two ranks then hold different values for a node, these are blended by the partition of
    unity.
    """

    def __init__(self, task: SweepContext, plan: BlockPlan):
        ranks, block = task.ranks, task.block
        self._ranks = ranks
        self._sweep = Sweep(task, plan)
        self._sync = task.settings.sync
        self._communicating = task.clock.part("communication")
        self._scratch = Interface(block, problems=task.problems, **task.tensors)
        self._residual = torch.empty_like(self._scratch.nodes())
        self._phases = []
        for colour in itertools.product((0, 1), repeat=len(block.start)):
            members = tuple(
                slice((c - a) % 2, n)
                for c, a, n in zip(colour, block.start, block.subdomains, strict=True)
            )
            self._phases.append(self._sweep.batches(members, step=2))
        self._agreements = []
        if ranks.size > 1:
            self._exchange = interface_exchange(
                task.ranks, task.block, task.settings, task.problems
            )
            if self._sync == "phase":
                put = self._sweep.put
                self._agreements = [self._agreement(phase, put) for phase in self._phases]
            else:
                everything = self._sweep.batches(block.ring(0))
                self._agreements = [self._agreement(everything, self._sweep.add_centre_lines)]

    def _agreement(
        self, members: Iterable[Batch], place: Callable[[torch.Tensor, Batch, Interface], None]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weight of this rank's value at each node, and where any rank has one."""
        weights = self._scratch.like()
        for batch in members:
            place(self._sweep.centre_lines(batch).fill_(1.0), batch, weights)
        own = weights.flat.clone()
        self._exchange.add(weights.lines)
        return own, weights.flat > 0

    def _agree(self, v: Interface, own: torch.Tensor, anywhere: torch.Tensor) -> None:
        """Replace what was computed in common by the weighted sum over the ranks."""
        with self._communicating:
            torch.mul(v.flat, own, out=self._scratch.flat)
            self._exchange.add(self._scratch.lines)
            torch.where(anywhere, self._scratch.flat, v.flat, out=v.flat)

    def advance(
        self,
        v: Interface,
        out: Interface,
        measure: UpdateSums | None = None,
        relaxation: float = 1.0,
    ) -> tuple[torch.Tensor, np.ndarray | None]:
        """Write the values after the four phases to ``out``; see `Iteration.advance`."""
        totals = None
        if measure is not None:
            mine = measure.rest()
            with self._communicating:
                totals = self._ranks.sum(mine)
        out.flat.copy_(v.flat)
        for number, phase in enumerate(self._phases):
            for batch in phase:
                self._sweep.put(self._sweep.solve(out, batch), batch, out)
            if self._agreements and self._sync == "phase":
                self._agree(out, *self._agreements[number])
        if self._agreements and self._sync == "iteration":
            self._agree(out, *self._agreements[0])
        residual = torch.sub(out.nodes(), v.nodes(), out=self._residual)
        if relaxation != 1.0:
            torch.lerp(v.flat, out.flat, relaxation, out=out.flat)
        return residual, totals

    def finish(self) -> None:
        """Do nothing: the ranks have agreed already."""


def plan_iteration(task: SweepContext, local_solver: SharedSolver, points: int = 1) -> Iteration:
    """Plan the iteration ``v -> M v`` with one local solver for all subdomains of a block.

    ``points``: coarse nodes per lattice cell along a line.
    """
    lattice, settings = task.block.lattice, task.settings
    plan = functools.partial(
        BlockPlan, local_solver, task.block, lattice.subdomain.centre_lines, **task.tensors
    )
    if settings.sweep == "phases":
        return PhaseIteration(task, plan(kept=True))
    planned = plan(weights=lattice.centre_weights, kept=True)
    if settings.levels == 1:
        return FixedPoint(task, planned, None)
    hats = torch.from_numpy(lattice.subdomain.hats(points)).to(**task.tensors)
    space = CoarseSpace(task, local_solver.operator, planned.responses(hats), points)
    return FixedPoint(task, planned, space)


def plan_fill(
    task: SweepContext, local_solver: SharedSolver, part: Block | None = None
) -> InteriorReconstruction:
    """Plan the fill of the nodes that a part of the block owns, by default the block."""
    wide = dataclasses.replace(part or task.block, halo=FILL_HALO)
    interior = wide.lattice.subdomain.interior
    return InteriorReconstruction(
        task.on(wide), BlockPlan(local_solver, wide, interior, **task.tensors)
    )
