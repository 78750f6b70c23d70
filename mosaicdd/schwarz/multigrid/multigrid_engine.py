"""The engine for media by multigrid: conjugate gradients on all nodes under a cycle of operator-made hats."""

import math
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from mosaicdd.lattice.axes import even, within
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.exact import MediumSolver
from mosaicdd.schwarz.base_engine import SolveOptions
from mosaicdd.schwarz.error_estimate import ErrorEstimate
from mosaicdd.schwarz.field_residual import FieldResidual
from mosaicdd.schwarz.field_share import FieldShare
from mosaicdd.schwarz.fill import Strip
from mosaicdd.schwarz.medium_engine import Iterated, MediumEngine, RightHandSide, require_method
from mosaicdd.schwarz.multigrid.flexible_gradients import Ended
from mosaicdd.schwarz.multigrid.judge import Judge
from mosaicdd.schwarz.multigrid.multigrid_system import MultigridSystem
from mosaicdd.schwarz.settings import StoppingRule
from mosaicdd.schwarz.stopping import History
from mosaicdd.schwarz.verdict import ROUNDINGS

_STRIP = 2**18  # values of the field that are handed out at once


class MultigridEngine(MediumEngine):
    """Solves in one medium on all nodes, one problem after another.

    Raises
    ------
    ValueError
        If the ranks do not fit the lattice, or the coefficients are not sound.
    Unsupported
        If the settings ask for what this method has not.
    """

    acceleration = "multigrid"

    def _prepare(self, lattice: Lattice, local_solver: MediumSolver) -> None:
        require_method(self.settings)
        self._fields: torch.Tensor | None = None
        self._share = FieldShare(self._ranks, lattice, lattice.spacing + 2)
        self._system = system = self._planned(transposed=False)
        self.measure, self._unknowns = system.measure, system.nodes.unknowns
        self.equations, self.conductances = system.equations, system.conductances

    def _planned(self, *, transposed: bool) -> MultigridSystem:
        """Return what is planned for the medium; see `MultigridSystem`."""
        solver, key = self._solver, (MultigridSystem, self.block, transposed)
        if key not in solver.planned:
            solver.planned[key] = MultigridSystem(
                self._ranks,
                self.block,
                solver.operator,
                solver.discretisation,
                self.clock,
                device=self._tensors["device"],
                transposed=transposed,
            )
        system: MultigridSystem = solver.planned[key]
        return system

    @property
    def unknowns(self) -> int:
        """Nodes of the whole domain that have an unknown."""
        return self._unknowns

    def change(
        self, values: np.ndarray, force: np.ndarray, rtol: float, *, transposed: bool
    ) -> tuple[np.ndarray, str]:
        """Return what a force makes of zero, whatever the values, by what is planned; see `BaseEngine.change`."""
        system = self._planned(transposed=transposed and self._system.nodes.directed)
        owned = self.block.owned_nodes()[1]
        here = within(system.own, owned)  # without copies along periodic axes
        b, x = system.start(force[here]), system.nodes.vector()
        rule = StoppingRule(rtol, 0.0, self.settings.max_iterations)
        judge = Judge(rule, None, None, None, lambda x, history: None, system.nodes.size_here)
        size = system.gradients.norm(b)
        with self.clock.part("multigrid"):
            status = system.gradients(b, x, size, judge).status
        zeros = Interface(self.block, **self._tensors)
        field = system.field(x, zeros, 0)
        if status == "stagnated":
            which = self._ranks, zeros, self.conductances, None, self.measure.weights
            rounding = FieldResidual(*which, np.array([size]))
            for strip in self._in_strips([field]):
                rounding.add_rounding(strip)
            if judge.history.residual[-1] <= ROUNDINGS * float(rounding.rounding()[0]):
                status = "converged_rounding"
        return field[within(owned, system.around)], status

    def begin_with(self, fields: Callable[[], torch.Tensor | None]) -> None:
        """Let the next solve begin with fields; without them, with what the lines span between them."""
        self._fields = fields()

    def _iterate(
        self,
        data: RightHandSide,
        rule: StoppingRule,
        options: SolveOptions,
    ) -> Iterated:
        system, fields = self._system, []
        ended: list[tuple[str, float, History, ErrorEstimate]] = []
        seconds = {"iterate": 0.0, "estimate": 0.0}
        for i in range(self.problems):
            begun = time.perf_counter()
            judge = self._judge(data, i, rule, options)
            x = self._begun(data, i, options)
            b, size = system.right_hand_side(data, i), float(data.measures[i]) or 1.0
            with self.clock.part("multigrid"):
                end = system.gradients(b, x, size, judge)
            iterated = time.perf_counter()
            status = end.status
            if not data.measures[i] and self._ranks.any(bool(b.any())):
                status = "converged_atol"  # of a right-hand side whose squares vanish
            del b
            with self.clock.part("estimate"):
                estimate = self._estimate(end)
            ended.append((status, system.nodes.rms(x), judge.history, estimate))
            fields.append(system.field(x, data.v, i))
            del x
            seconds["iterate"] += iterated - begun
            seconds["estimate"] += time.perf_counter() - iterated
        self._fields = None
        ends, sizes, histories, estimates = zip(*ended, strict=True)
        v, _ = self._on_lines(fields)
        return Iterated(
            v,
            ends,
            np.array(sizes),
            histories,
            estimates,
            lambda: self._in_strips(fields),
            seconds,
        )

    def _judge(
        self, data: RightHandSide, number: int, rule: StoppingRule, options: SolveOptions
    ) -> Judge:
        """Return what judges the iterations of a problem."""
        watch = options.watch

        def save(x: torch.Tensor, history: History) -> None:
            v, strips = self._on_lines([self._system.field(x, data.v, number)])
            if watch is not None and watch.save is not None:
                watch.save(v, history, strips)

        earlier = options.history if number == 0 else None
        nodes = self._system.nodes
        return Judge(rule, earlier, options.progress, watch, save, nodes.size_here)

    def _begun(self, data: RightHandSide, number: int, options: SolveOptions) -> torch.Tensor:
        """Return the vector that the iteration of a problem begins with."""
        own = self._system.own
        unknowns = within(own, self.block.owned_nodes()[1])
        if self._fields is not None:
            values = self._fields[number].double().cpu().numpy()[unknowns]
            return self._system.start(np.where(np.isnan(values), 0.0, values))
        if options.start is not None:
            values = self._share.owned(self._share.between_lines(data.v))[unknowns]
            return self._system.start(values)
        constant = data.constants[number]
        if not constant:
            return self._system.nodes.vector()
        return self._system.start(np.full([o.stop - o.start for o in own], constant))

    def _estimate(self, end: Ended) -> ErrorEstimate:
        """Estimate the error of a result from its residual."""
        error, factor, energy = self._system.gradients.error(end)
        nodes, block = self._system.nodes, self.block
        rms = factor * nodes.rms(error)
        lattice, here, there = block.lattice, [], []
        box = zip(nodes.nodes.box, lattice.first_node, block.start, block.stop, strict=True)
        for (low, high), first, start, stop in box:
            centres = first + lattice.spacing * np.arange(start, stop)
            inside = (centres >= low) & (centres <= high)
            here.append(np.flatnonzero(inside))
            there.append(centres[inside])
        at_centres = np.zeros(block.subdomains)
        places = nodes.nodes.places([n.ravel() for n in np.meshgrid(*there, indexing="ij")])
        values = error.view(-1)[places].cpu().numpy()
        at_centres[np.ix_(*here)] = np.abs(factor * values).reshape([len(n) for n in here])
        place = tuple(map(slice, block.start, block.stop))
        bound = None if math.isnan(energy) else energy
        return ErrorEstimate(rms, rms, torch.from_numpy(at_centres), place, bound)

    def _on_lines(self, fields: Sequence[np.ndarray]) -> tuple[Interface, Iterator[Strip]]:
        """Return fields on the lattice lines, and this rank's nodes of them in strips."""
        share, own = self._share, within(self.block.owned_nodes()[1], self._system.around)
        wide = [share.widened(values[own]) for values in fields]
        return share.lines(wide, **self._tensors), share.strips(wide, **self._tensors)

    def _in_strips(self, fields: Sequence[np.ndarray]) -> Iterator[Strip]:
        """Yield this rank's part of fields from below, with a node more all around."""
        own, around = self._system.own, self._system.around
        inner = within(own, around)
        rows = max(1, _STRIP // (len(fields) * fields[0][0].size))
        for part in even(own[0].stop - own[0].start, rows):
            low, high = own[0].start + part.start, own[0].start + part.stop
            first = max(low - 1, around[0].start) - around[0].start
            last = min(high + 1, around[0].stop) - around[0].start
            values = np.stack([field[first:last] for field in fields])
            start = low - around[0].start - first
            yield Strip(
                torch.from_numpy(values).to(**self._tensors),
                (slice(start, start + high - low), *inner[1:]),
                (slice(low, high), *own[1:]),
            )
