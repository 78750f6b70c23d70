"""``mosaicdd solve`` of several problems: batch after batch, in groups of ranks side by side.

The groups work in rounds. In each, a group solves a batch of its share of the problems, and all
ranks of all groups hand what they have to rank 0, which writes the one file. A group that has no
problems left takes part with nothing.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

from mosaicdd.cli.many_output import ManyOutput
from mosaicdd.cli.many_result import Result, merged_report, small_reports
from mosaicdd.cli.progress import IterationProgress
from mosaicdd.cli.result import parts_of_ranks, report_of
from mosaicdd.cli.show import Show
from mosaicdd.cli.signals import listening
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.bound import LocalSolver
from mosaicdd.parallel.machine import peak_memory
from mosaicdd.parallel.replicas import Replicas
from mosaicdd.parallel.watch import Watch
from mosaicdd.problems.boundary import Boundary
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.outcome import Outcome
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopwatch import Stopwatch

_SUBDOMAINS = 8192  # of all problems of a batch: beyond, a batch gains nothing


def default_batch(lattice: Lattice, settings: SolveSettings) -> int:
    """Return how many problems are solved at once: 1 for methods that take one only."""
    if not settings.takes_many:
        return 1
    return max(1, _SUBDOMAINS // math.prod(lattice.subdomains))


def require_one_problem(problems: int, **given: bool) -> None:
    """Check that no option was given that takes one problem only.

    Raises
    ------
    ValueError
        If there are several problems and one of the options, which are named like arguments.
    """
    for name, is_given in given.items():
        if is_given and problems > 1:
            raise ValueError(
                f"--{name.replace('_', '-')} takes one problem, --boundary has {problems}: "
                "solve them one by one"
            )


def require_replicas_fit(replicas: Replicas, problems: int) -> None:
    """Check that there is a problem for each group.

    Raises
    ------
    ValueError
        If there are more groups.
    """
    if replicas.count > problems:
        raise ValueError(
            f"--replicas {replicas.count}: each needs a problem of its own, --boundary has "
            f"{problems}"
        )


class ManyProblems:
    """Solves the share of a group in batches.

    Parameters
    ----------
    batch
        Problems that a group solves at once, at most.

    Raises
    ------
    ValueError
        If there are more groups than problems.
    TypeError
        If the method does not take several problems at once.
    """

    def __init__(
        self,
        replicas: Replicas,
        lattice: Lattice,
        local_solver: LocalSolver,
        settings: SolveSettings,
        boundaries: Sequence[Boundary],
        batch: int,
        clock: Stopwatch,
    ):
        count = len(boundaries)
        require_replicas_fit(replicas, count)
        self._replicas = replicas
        self._ranks = replicas.ranks.fitted(lattice.subdomains)
        self._lattice = lattice
        self._local_solver = local_solver
        self._settings = settings
        self._boundaries = boundaries
        self._clock = clock
        shares = [replicas.share(count, index) for index in range(replicas.count)]
        self.batch = min(batch, max(map(len, shares)))
        self._count = -(-max(map(len, shares)) // self.batch)
        mine = shares[replicas.index]
        self._batches = [mine[i : i + self.batch] for i in range(0, len(mine), self.batch)]
        self._solver = replicas.world.agree(lambda: self._plan(len(self._batches[0])))

    def _plan(self, problems: int) -> Engine:
        arguments = (self._ranks, self._lattice, self._local_solver, self._settings)
        return Engine(*arguments, problems=problems, clock=self._clock)

    def run(
        self, path: str, device: str, show: Show, seconds: Callable[[dict[str, float]], dict]
    ) -> dict:
        """Solve and write all problems; return the report, the same on all ranks.

        Parameters
        ----------
        seconds
            Returns the report's seconds for those that this rank has spent on solving.
        """
        inputs = (self._replicas, self._lattice, self._boundaries, self._settings, self._clock)
        with ManyOutput(path, *inputs) as output:
            results, spent = self._rounds(output, device, show)
            report = self._report(results) | {"seconds": seconds(spent)}
            report["parts"] = parts_of_ranks(self._replicas.world, self._clock)
            output.describe(report, results)
        return report

    def _rounds(
        self, output: ManyOutput, device: str, show: Show
    ) -> tuple[list[Result], dict[str, float]]:
        """Solve and write batch after batch; return all results, and the seconds of this rank.

        A signal to any rank ends the batch that its group works on; the other groups finish theirs,
        and no group begins another.
        """
        watch, results = Watch(), {}
        spent = dict.fromkeys(("iterate", "estimate", "assemble"), 0.0)
        with listening(watch):
            for number in range(self._count):
                if number and self._replicas.world.any(watch.interrupted):
                    break
                members = self._batches[number] if number < len(self._batches) else range(0)
                solutions = self._solve(members, output, watch, self._progress(number, show))
                output.maps(solutions, members)
                for member, solution in zip(members, solutions, strict=True):
                    results[member] = self._result(solution, device)
                for name in spent:
                    spent[name] += solutions[0].seconds[name] if solutions else 0.0
        return self._gathered(results), spent

    def _solve(
        self, members: range, output: ManyOutput, watch: Watch, progress: IterationProgress
    ) -> list[Outcome]:
        """Solve and write a batch, or take part in the writing of others."""
        if not members:
            output.fields(iter(()), members)
            return []
        if self._solver.problems != len(members):
            self._solver = self._plan(len(members))
        return self._solver.solve_many(
            [self._boundaries[member] for member in members],
            watch=watch,
            progress=progress,
            sink=lambda strips: output.fields(strips, members),
        )

    def _progress(self, number: int, show: Show) -> IterationProgress:
        """Return what shows the progress of a round as that of the whole."""
        where = f"batch {number + 1} of {self._count}, " if self._count > 1 else ""

        def show_whole(fraction: float, note: str = "") -> None:
            show((number + fraction) / self._count, where + note)

        return IterationProgress(self._settings.stopping, show_whole)

    def _result(self, solution: Outcome, device: str) -> Result:
        inputs = (self._ranks, self._lattice, self._local_solver, self._settings)
        history = dataclasses.asdict(solution.history)
        return Result(report_of(*inputs, solution, device), history)

    def _gathered(self, results: dict[int, Result]) -> list[Result]:
        """Return the results of all groups, those of problems that were not begun among them."""
        parts = self._replicas.world.allgather(results if self._ranks.is_root else {})
        known = {member: result for part in parts for member, result in part.items()}
        return [known.get(member, Result()) for member in range(len(self._boundaries))]

    def _report(self, results: list[Result]) -> dict:
        """Return what is said of all problems, but the seconds."""
        world = self._replicas.world
        return merged_report(results) | {
            "peak_memory_bytes": peak_memory(world),
            "ranks": world.size,
            "replicas": self._replicas.count,
            "batch": self.batch,
            "problems": small_reports(results),
        }
