"""The engine for media whose subdomains have operators by a network: the Schwarz iteration, then as averages.

The iteration is that of constant coefficients (`fixed_point`, or the paper's, `phases`), on the nodes of a grid four
times coarser, and every subdomain has a matrix of its own. So has every lattice node a row of the coarse
problem, which is factorised by every rank. What the operators agree on is filled, corrected once and estimated
as in `upscaled_engine`, by the equation of averaged conductances.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.sparse
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.coarsening import Coarsening
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.transfer import Batch, Transfer
from mosaicdd.local_solvers.subdomain_graphs import CELLS
from mosaicdd.local_solvers.subdomain_operators import (
    OperatorPlan,
    OperatorSolver,
    SubdomainOperators,
)
from mosaicdd.parallel.node_gather import NodeGather
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.base_engine import SolveOptions
from mosaicdd.schwarz.coarse.coarse_solve import ReplicatedSolve, factorised
from mosaicdd.schwarz.drivers import anderson, gmres, stationary
from mosaicdd.schwarz.fill import FILL_HALO, Fill
from mosaicdd.schwarz.fixed_point import FixedPoint, Iteration
from mosaicdd.schwarz.layouts import block_of
from mosaicdd.schwarz.phases import PhaseIteration
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.sizes import fill_batch
from mosaicdd.schwarz.stopping import History, Monitor
from mosaicdd.schwarz.stopwatch import Stopwatch
from mosaicdd.schwarz.upscaled.upscaled_engine import Approximation, UpscaledEngine
from mosaicdd.unsupported import Unsupported

_DRIVERS = {"none": stationary, "gmres": gmres, "anderson": anderson}
_MOST = 2**20  # unknowns of the coarse problem
_NEIGHBOURS = ((-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1))


class OperatorEngine(UpscaledEngine[OperatorSolver]):
    """Solves boundary value problems by the operators that a network makes of a medium.

    Raises
    ------
    ValueError
        If the ranks do not fit the lattice, the coefficients are not sound, the network does not know the
        medium, or the coarse problem is too large.
    Unsupported
        If the settings ask for what this method has not.
    """

    def _prepare(self, lattice: Lattice, local_solver: OperatorSolver) -> None:
        settings, ranks, problems = self.settings, self._ranks, self.problems
        self.acceleration = settings.accelerate or ("gmres" if settings.levels == 2 else "none")
        if self.acceleration not in _DRIVERS:
            raise Unsupported(
                f"accelerate={self.acceleration!r} is not for coefficients that are fields; known: "
                f"{', '.join(_DRIVERS)}"
            )
        super()._prepare(lattice, local_solver)
        block, lattice = self._coarse.block, self._lattice
        wide = dataclasses.replace(block, halo=FILL_HALO)
        with self.clock.part("operators"):
            self._operators = SubdomainOperators(local_solver, wide, **self._tensors)
        mine = self._operators.outside[*wide.ring(0)]
        local_solver.require_range(*ranks.sum(np.array([mine.numel(), float(mine.sum())])))
        points = lattice.subdomain.centre_lines
        weights = np.tile(lattice.hat, 2) if settings.sweep == "additive" else None
        self._sweeping = self._operators.plan(block, points, weights)
        self._filling = self._operators.plan(wide, lattice.subdomain.interior)
        shared = (settings, problems, self.clock)
        self._iterate: Iteration
        if settings.sweep == "phases":
            self._iterate = PhaseIteration(ranks, block, self._sweeping, *shared)  # type: ignore[arg-type]
        else:
            coarse_space = None
            if settings.levels == 2:
                coarse_space = OperatorCoarseSpace(ranks, block, self._sweeping, *shared)
            self._iterate = FixedPoint(ranks, block, self._sweeping, *shared, coarse_space)  # type: ignore[arg-type]
        self._inside = Fill(
            wide,
            self._filling,  # type: ignore[arg-type]
            *shared,
            batch_subdomains=fill_batch(settings.batch_subdomains),
        )

    @property
    def _condensed_settings(self) -> SolveSettings:
        """How the equation of averages is solved: the settings of the iteration by operators are not its own."""
        return self.settings.with_changes(levels=2, sweep="additive", accelerate=None)

    def _approximate(
        self, boundaries: Sequence[Boundary], options: SolveOptions
    ) -> Sequence[Approximation]:
        """Iterate until the operators agree, and take what they say between the lines."""
        with self.clock.part("sample"):
            loads = self._ranks.agree(self._operators.loads)
        for plan in (self._sweeping, self._filling):
            plan.load(loads)
        self._iterate.affine = self._sweeping.affine
        v = options.start or Interface(self._coarse.block, problems=self.problems, **self._tensors)
        v.impose(boundaries)
        monitor = Monitor(
            self._ranks,
            self._rule(options),
            v,
            progress=options.progress,
            watch=options.watch,
        )
        if options.history is not None:
            monitor.history = options.history.followed_by(History())
        v, statuses = _DRIVERS[self.acceleration](self._iterate, v, monitor)
        region = torch.empty(
            self.problems, *(n + 1 for n in self._inside.block.cells), **self._tensors
        )
        for _ in self._inside.strips(self.movement.widen(v, FILL_HALO), region):
            pass
        fields = region[:, *self._inside.block.owned_nodes()[0]]
        return [
            Approximation(
                status,
                monitor.histories[i].update[-1],
                float(monitor.sizes[i]),
                monitor.histories[i],
                v,
                fields[i],
            )
            for i, status in enumerate(statuses)
        ]


class OperatorCoarseSpace:
    """The coarse correction of subdomains that have an operator each; as `CoarseSpace`.

    Parameters
    ----------
    plan
        The operators, for the centre lines, with the weights of `Lattice.hat`.

    Raises
    ------
    ValueError
        If the coarse problem is too large to be factorised.
    """

    def __init__(
        self,
        ranks: Ranks,
        block: Block,
        plan: OperatorPlan,
        settings: SolveSettings,
        problems: int,
        clock: Stopwatch,
    ):
        tensors = settings.tensors
        self._coarsening = coarsening = Coarsening(block.lattice, 1)
        if coarsening.size > _MOST:
            raise ValueError(
                f"the coarse problem has {coarsening.size} unknowns, every rank would factorise it, up to "
                f"{_MOST}; take fewer cells, or 'exact'"
            )
        step = CELLS // 2
        away = np.abs(np.arange(4 * CELLS)[:, None] - step * np.arange(8))
        hats = np.maximum(0.0, 1.0 - np.minimum(away, 4 * CELLS - away) / step)
        self._responses = plan.operators @ torch.from_numpy(hats).to(**tensors)
        centre = self._responses[:, :, step - 1].permute(2, 0, 1).flatten(1)  # (8, owned)
        blocks = (block_of(ranks, block.lattice, rank) for rank in range(ranks.size))
        places = [coarsening.touched(one) for one in blocks]
        gather = NodeGather(ranks, places, coarsening.size, problems=8)
        everywhere, _ = gather(centre.double().cpu(), np.empty(0))
        matrix = _assembled(everywhere.numpy(), block.lattice.subdomains)
        self._solve = ReplicatedSolve(ranks, block, coarsening, factorised(matrix), problems, clock)
        coarse = coarsening.block(block)
        self._correction = Interface(coarse, problems=problems, **tensors)
        self._transfer = Transfer(coarse, **tensors)
        self._moving = clock.part("gather_scatter")
        self._solving = clock.part("coarse")
        self._tensors = tensors

    def correct(
        self,
        v: Interface,
        out: Interface,
        residual: torch.Tensor,
        sums: np.ndarray,
        *,
        alone: bool,
    ) -> np.ndarray:
        """Solve for the correction to the residual at the owned lattice nodes, as `CoarseSpace`."""
        return self._solve(residual.flatten(1), sums, self._correction)

    def sweep(self, batch: Batch, out: torch.Tensor) -> None:
        """Write ``T P c`` on the centre lines of a batch, weighted, to ``out``, ``(B, 2 (m - 1))``."""
        around = torch.empty(len(out), 8, **self._tensors)
        with self._moving:
            self._transfer.restrict(self._correction, batch, around)
        with self._solving:
            responses = self._responses[*batch].flatten(0, 1)  # (b, Q, 8)
            given = around.view(-1, len(responses), 8).permute(1, 2, 0)
            values = torch.matmul(responses, given).permute(2, 0, 1)
            out.view(values.shape).copy_(values)


def _assembled(responses: np.ndarray, subdomains: tuple[int, ...]) -> scipy.sparse.csc_array:
    """Return ``R (I - T) P`` from what hats around each lattice node become there, ``(8, nodes)``."""
    numbers = np.full([n + 2 for n in subdomains], -1)
    inner = numbers[1:-1, 1:-1]
    inner[:] = np.arange(inner.size).reshape(subdomains)
    rows, columns, values = [], [], []
    for (dy, dx), response in zip(_NEIGHBOURS, responses, strict=True):
        beside = numbers[1 + dy : 1 + dy + subdomains[0], 1 + dx : 1 + dx + subdomains[1]].ravel()
        there = beside >= 0
        rows.append(inner.ravel()[there])
        columns.append(beside[there])
        values.append(-response[there])
    entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    matrix = scipy.sparse.coo_array(entries, shape=(inner.size, inner.size)).tocsc()
    return matrix + scipy.sparse.eye_array(inner.size, format="csc")
