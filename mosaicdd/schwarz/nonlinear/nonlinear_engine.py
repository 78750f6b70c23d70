"""The engine for nonlinear equations by their local solvers: Newton's method in subdomains, or a network.

The iteration of `nonlinear_iteration` starts from the solution on a coarser grid, by Newton's method on that, or,
where there is no such grid or a network is as fast, from the linear equation's; the field between the lattice
lines, and the estimate of its error, are those of `nonlinear_fill`. A certificate is `NewtonEngine`'s, from this field
on.
"""

import dataclasses
import math
import time
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.exact import NewtonSolver
from mosaicdd.local_solvers.nonlinear.nonlinear import NonlinearSolver
from mosaicdd.problems.fields.checksum import checksum
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.base_engine import BaseEngine, SolveOptions
from mosaicdd.schwarz.engines import require_method
from mosaicdd.schwarz.fill import Strip
from mosaicdd.schwarz.nonlinear.newton_engine import NewtonEngine
from mosaicdd.schwarz.nonlinear.nonlinear_fill import NewtonFill
from mosaicdd.schwarz.nonlinear.nonlinear_iteration import NonlinearIteration, drive
from mosaicdd.schwarz.nonlinear.starts import nested_start, write_linear_start
from mosaicdd.schwarz.results.outcome import Outcome
from mosaicdd.schwarz.settings import CONVERGED
from mosaicdd.schwarz.stopping import Monitor
from mosaicdd.schwarz.sweep import Task
from mosaicdd.schwarz.verdict import PLAUSIBLE_LINEARISED, Evidence


class NonlinearEngine(BaseEngine[NonlinearSolver]):
    """Solves nonlinear boundary value problems by local solvers, one after another.

    `ValueError` if the ranks do not fit the lattice. `TypeError` if the settings ask for what this method has not.
    """

    acceleration = "none"

    def _prepare(self, lattice: Lattice, local_solver: NonlinearSolver) -> None:
        settings, ranks = self.settings, self._ranks
        require_method(settings)
        device = self._tensors["device"]
        self._planned = local_solver.plan(self.block, device, settings.out_of_range == "edge")
        task = Task(ranks, self.block, settings, clock=self.clock)
        self._iterate = NonlinearIteration(task, self._planned)
        self._fill = NewtonFill(local_solver, self.block, device, settings.rtol)
        source, square = local_solver.source, local_solver.subdomain
        self._sampled: tuple[Problem, torch.Tensor] | None = None
        self._newton: NewtonEngine | None = None
        if settings.certify is not None:
            newton = NewtonSolver(local_solver.operator, square, source)
            self._newton = NewtonEngine(
                ranks,
                lattice,
                newton,
                settings,
                problems=self.problems,
                fill=self._wanted,
                window=self._window,
                clock=self.clock,
            )

    def check_source(self, problem: Problem) -> Hashable:
        """Sample the source of one problem, for the solve, too; see `BaseEngine`."""
        source = self._solver.source
        if self._has_source and problem.problems == 1 and source.problem is problem:
            f = source.on(self.block, **self._tensors)
            self._sampled = problem, f
            within, place = self.block.owned_nodes()
            told = None if problem.source is None else problem.source.value
            return checksum(f[:, *within].cpu().numpy(), place) if told is None else told
        return super().check_source(problem)

    def check(self, boundaries: Sequence[Boundary]) -> None:
        """Raise `ValueError` if the residual is too large between the values on the sides; see `NewtonFill.check`."""
        for boundary in boundaries:
            self._fill.check(boundary)

    def _solve_many(self, boundaries: Sequence[Boundary], options: SolveOptions) -> list[Outcome]:
        clock = [time.perf_counter()]
        region = Interface(self.block, **self._tensors)
        f = self._source()
        solved = []
        for i, boundary in enumerate(boundaries):
            v, start = region.like(), options.begun(i)
            if start is None:
                with self.clock.part("start"):
                    self._begin(v, boundary, i)
            else:
                v.flat.copy_(start.flat.view(self.problems, -1)[i])
            v.impose([boundary])
            source = None if f is None else f[i % len(f)]
            solved.append(self._solve(v, source, self._monitor(v, options, i)))
        clock.append(time.perf_counter())
        fields = torch.stack([ended.pop("wide") for ended in solved])
        v = Interface(self.block, problems=self.problems, **self._tensors)
        v.flat.copy_(torch.cat([ended["interface"].flat for ended in solved]))
        certify = self._newton is not None and not any(
            ended["status"] == "interrupted" for ended in solved
        )
        if certify:
            return self._certified(boundaries, solved, v, fields, options, clock)
        own = self.block.owned_nodes()[1]
        whole = tuple(slice(0, p.stop - p.start) for p in own)
        kept = self._delivered(iter([Strip(fields, whole, own)]), options.sink)
        estimating = sum(ended.pop("estimating") for ended in solved)
        clock.append(time.perf_counter())
        iterate, assemble = np.diff(clock).tolist()
        seconds = {"iterate": iterate - estimating, "estimate": estimating, "assemble": assemble}
        return [
            self._outcome(
                **(ended | {"interface": v}),
                number=i,
                field=None if kept is None else kept[i],
                seconds=dict(seconds),
            )
            for i, ended in enumerate(solved)
        ]

    def _begin(self, v: Interface, boundary: Boundary, number: int) -> None:
        """Write where the iteration of a problem begins."""
        values = None
        if self._solver.learned is None:  # networks iterate faster than Newton's method begins
            where = self._solver.source.problem, self.block.lattice, boundary, number
            nested = nested_start(*where, self.settings, self._ranks.size)
            values = None if nested is None else nested(self.block.nodes)
        if values is None:
            write_linear_start(v, self._solver, boundary, number)
        else:
            v.take(torch.from_numpy(values[None]))

    def _source(self) -> torch.Tensor | None:
        """Return the sources at the nodes of the region; that of one problem may be known already."""
        (known, f), self._sampled = self._sampled or (None, None), None
        source = self._solver.source
        if not self._has_source or known is source.problem:
            return f
        return source.on(self.block, **self._tensors)

    @property
    def _has_source(self) -> bool:
        return self._solver.source.problem.source is not None

    def _solve(self, v: Interface, f: torch.Tensor | None, monitor: Monitor) -> dict[str, Any]:
        """Solve one problem: what an outcome says of it, its owned nodes, and seconds of the estimate."""
        self._planned.load(f)
        self._fill.load(f)
        v, (status,) = drive(self._iterate, v, monitor)
        outside = self._iterate.outside(v)
        with self.clock.part("fill"):
            self._fill.fill(v)
        begun = time.perf_counter()
        with self.clock.part("residual"):
            counts = [float(left.count_nonzero()) for left in (self._iterate.left, self._fill.left)]
            *squares, subdomains, elements = self._ranks.sum(
                np.array([*self._fill.measure(), *counts])
            )
        unsolved = (subdomains or elements) and status != "diverged_nan"
        failure = self._unsolved() if unsolved else None
        estimate = self._fill.estimate(v, self._iterate, monitor)
        residual = float(np.sqrt(squares[0] / squares[1])) if squares[1] else 0.0
        own = self._fill.u[self.block.owned_nodes()[0]].clone()
        return {
            "status": "stagnated" if failure and status in CONVERGED else status,
            "failure": failure,
            "evidence": Evidence(
                estimate.interface,
                monitor.size,
                residual,
                plausible=max(PLAUSIBLE_LINEARISED, 10 * self.settings.rtol),
            ),
            "update": monitor.history.update[-1],
            "estimate": estimate,
            "outside": outside,
            "history": monitor.history,
            "interface": v.like(v.flat.clone()),
            "wide": own,
            "estimating": time.perf_counter() - begun,
        }

    def _unsolved(self) -> str:
        """Say in which squares Newton's method has not converged; the same on all ranks."""
        s, first = self.block.lattice.spacing, self.block.nodes
        here: tuple[dict[tuple[int, ...], float], ...] = ({}, {})  # last steps by lower-left nodes
        owned = [part.start for part in self.block.ring(0)]
        for mine, left, start in zip(
            here, (self._iterate.left, self._fill.left), (owned, [0, 0]), strict=True
        ):
            for at in left.nonzero().tolist():
                places = zip(first, start, at, strict=True)
                node = tuple(part.start + (begin + k) * s for part, begin, k in places)
                mine[node] = float(left[*at].nan_to_num(math.inf))
        every = self._ranks.allgather(here)
        subdomains, elements = (
            {k: v for part in every for k, v in part[i].items()} for i in (0, 1)
        )
        squares, kind, side = (
            (subdomains, "subdomain", 2 * s) if subdomains else (elements, "element", s)
        )
        (y, x), step = max(squares.items(), key=lambda square: (square[1], square[0]))
        return (
            f"Newton's method did not converge in {len(squares)} {kind}{'s' * (len(squares) > 1)} of {side} x {side} "
            f"cells; in that of the nodes {y} to {y + side} along y and {x} to {x + side} along x its last step is "
            f"{step:.0e} of the largest value there: take 'exact'"
        )

    def _certified(
        self,
        boundaries: Sequence[Boundary],
        solved: list[dict[str, Any]],
        v: Interface,
        fields: torch.Tensor,
        options: SolveOptions,
        clock: list[float],
    ) -> list[Outcome]:
        """Take Newton's steps from the fields; one that is not finite is no start."""
        if self._newton is None:
            raise RuntimeError("no certificate was asked for")
        sound = self._ranks.sum(np.array([float(not torch.isfinite(fields).all())]))[0] == 0
        if sound:
            self._newton.begin_with(lambda: fields)
        outcomes = self._newton.solve_many(
            boundaries,
            start=v if sound else None,
            progress=options.progress,
            watch=options.watch,
            sink=options.sink,
            atol=options.atol,
        )
        before = clock[1] - clock[0]
        return [
            dataclasses.replace(
                outcome,
                history=ended["history"].followed_by(outcome.history),
                outside=ended["outside"],
                seconds=outcome.seconds | {"iterate": outcome.seconds["iterate"] + before},
            )
            for outcome, ended in zip(outcomes, solved, strict=True)
        ]
