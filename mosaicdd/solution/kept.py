"""Parts of interfaces and fields on the ranks after a solve, and how they come together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch

from mosaicdd.axes import common
from mosaicdd.grid.ghosts import GhostNodes
from mosaicdd.grid.partition import NodeBoxes, Partition, SampleNodes
from mosaicdd.grid.window import Window
from mosaicdd.parallel.partition import Cuts
from mosaicdd.parallel.ranks import Ranks, Replicas
from mosaicdd.problems.fingerprint import Fingerprint, require_fingerprint
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.problems.sides.sides import mean_slope, without_slope
from mosaicdd.quantities.quantities import Ask
from mosaicdd.quantities.sums import FieldOnRank
from mosaicdd.schwarz.block import Lattice
from mosaicdd.schwarz.fill import PointValues
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.layouts import InterfaceMovement
from mosaicdd.schwarz.local_solvers.bound import SharedSolver
from mosaicdd.solvers.outcome import Outcome
from mosaicdd.solvers.settings import SolveSettings
from mosaicdd.storage.solution_file import read_array
from mosaicdd.storage.solution_writer import ERRORS, RankPart
from mosaicdd.tensors import Tensors
from mosaicdd.unsupported import Unsupported

LEFT_OUT = "the field was left out by keep='interface'; solve with keep='field'"
OVER_RANKS = (
    "the field lies over {ranks} ranks: gather(), called by all of them together, returns it on each; local is "
    "the part of this one"
)


@dataclass(frozen=True, kw_only=True)
class LocalResult(RankPart):
    """One rank's part of the solutions of some problems.

    Parameters
    ----------
    given_ranks
        What the solver was given as ``ranks``: its own communicator is freed with it.
    boxes, cuts
        Of the nodes of the grid; where the process grid cuts these boxes, if not evenly.
    samples
        The nodes that have an error estimate of their own.
    network
        By which the field was filled, if one can evaluate it between the nodes, too. No other solver is
        kept: the operators of a medium take many times as much memory as its field.
    boundaries
        Of all problems.
    told
        What tells the data of the problems from others, at these nodes.
    outcomes
        How the problems of this rank's group ended, those from the first on that are kept.
    first
        The number of the first of these.
    path
        The file that holds the fields, if they were written and not kept.
    """

    given_ranks: Any
    settings: SolveSettings
    boxes: NodeBoxes
    cuts: Cuts | None
    samples: SampleNodes
    network: Any  # a `SharedSolver`, or None
    boundaries: Sequence[Boundary]
    told: Fingerprint
    outcomes: Sequence[Outcome] = ()
    first: int = 0
    path: Path | None = None

    @property
    def problems(self) -> int:
        """The number of problems, of all groups."""
        return len(self.boundaries)

    @property
    def members(self) -> slice:
        """The problems whose fields this rank has."""
        return slice(self.first, self.first + len(self.outcomes))

    @property
    def local(self) -> np.ndarray:
        """The part of the fields that this rank has, ``(n, rows, columns)``."""
        if self.path is not None:
            each = [read_array(self.path, "solution", i) for i in range(self.problems)]
            return np.stack(each)[self.members, *self.place]
        fields = [outcome.field for outcome in self.outcomes if outcome.field is not None]
        if len(fields) < len(self.outcomes):
            raise RuntimeError(LEFT_OUT)
        return _stacked(fields) if fields else np.zeros((0, *self.shape), self.dtype)

    # Together

    def group(self, ranks: Ranks) -> tuple[Ranks, int]:
        """Return the ranks of this rank's group, as they lay over the grid, and which group it is."""
        groups = Replicas(ranks, self.settings.replicas, self.settings.dims)
        return groups.ranks.fitted(self.boxes.counts, self.cuts), groups.index

    def movement(self, group: Ranks, lattice: Lattice) -> InterfaceMovement:
        """Return the movement of interfaces over the ranks of a group."""
        return InterfaceMovement(group, lattice, self.settings.halo_depth)

    def require_fingerprint(self, problem: Problem, ranks: Ranks) -> None:
        """Check that the problem's data are what they were when it was solved; else all raise `ValueError`."""
        data = self.told, problem, self.grid, self.own
        ranks.run_on_all(lambda: require_fingerprint(*data))

    def gather(self, name: str) -> np.ndarray | None:
        """Return a quantity of the whole domain and of all problems on every rank, None if unknown.

        ``name``: as a solution file has it, ``"solution"``, ``"error_estimate"`` or ``"outside_training_range"``.
        """
        if self.path is not None:
            stored = [read_array(self.path, name, i) for i in range(self.problems)]
            return None if stored[0] is None else np.stack(stored)
        with Ranks.of(self.given_ranks) as ranks:
            nodes = self.window.shape if name == "solution" else self.samples.counts
            outcomes, place, shape = self.outcomes, self.place, (self.problems, *nodes)
            maps = [o.error_estimate.nodes if name == ERRORS else o.outside for o in outcomes]
            known = [values for values in maps if values is not None]
            if name != "solution" and ranks.any(len(known) < len(maps)):
                return None
            whole = np.zeros(shape, self.dtype)
            if outcomes:
                values = self.local if name == "solution" else _stacked(known)
                if name != "solution":
                    place = outcomes[0].error_estimate.place
                if ranks.size == 1 and values.shape == shape:
                    return values
                whole[self.members, *place] = values
            return ranks.sum(whole)

    def at(self, network: SharedSolver, cells: np.ndarray) -> np.ndarray:
        """Return the values ``(n, q)`` by a network at points ``(q, 2)``, (y, x) in cells."""
        with Ranks.of(self.given_ranks) as ranks:
            group, _ = self.group(ranks)
            tensors, lattice = self.settings.tensors, network.lattice(self.grid)
            evaluate = PointValues(group, network, self.movement(group, lattice), cells, **tensors)
            values = np.zeros((self.problems, len(cells)))
            for number, outcome in enumerate(self.outcomes, self.first):
                at_points = evaluate(outcome.interface, self.boundaries[number : number + 1])
                if group.is_root:
                    values[number] = at_points
            return ranks.sum(values)

    # For another solve

    def require_start(self, members: range, partition: Partition, halo: int | None = None) -> None:
        """Check that another solve of some problems can begin here.

        ``partition``: of the other solve; ``halo``: of its interface, None of one on the whole grid.

        `ValueError` if it is of another grid, lies otherwise over the ranks, or is not kept.
        """
        if self.grid != partition.grid:
            raise ValueError(
                f"start has {self.grid}, the problem {partition.grid}; they must be equal"
            )
        if self.boxes != partition.boxes:
            raise ValueError(
                "start was solved by another local solver, whose nodes lie otherwise; use the same"
            )
        if set(members) - set(range(self.members.start, self.members.stop)):
            raise ValueError(
                "start does not keep all problems on the ranks that need them: it was written to a "
                "file, interrupted, or solved with other replicas"
            )
        lines = self.outcomes[0].interface if self.outcomes else None
        if self.own != partition.owned or (None if lines is None else lines.block.halo) != halo:
            raise ValueError(
                "start lies otherwise over the ranks; use the same ranks, dims, halo_depth and local solver"
            )

    def start(self, members: range, **tensors: Unpack[Tensors]) -> Interface:
        """Return a copy of the interface of some problems, which must have one."""
        lines = [outcome.interface for outcome in self._of(members)]
        flat = torch.cat([v.flat for v in lines]).to(**tensors)
        return Interface(lines[0].block, problems=len(members), flat=flat, **tensors)

    def _of(self, members: range) -> Sequence[Outcome]:
        """Return the outcomes of some problems, as far as they are kept."""
        return self.outcomes[members.start - self.first : members.stop - self.first]

    def start_fields(self, members: range) -> torch.Tensor | None:
        """Return this rank's part of the fields of some problems, None where it is not in memory."""
        fields = [o.field for o in self._of(members) if o.field is not None]
        shape = tuple(part.stop - part.start for part in self.own)
        if len(fields) < len(members) or any(field.shape != shape for field in fields):
            return None
        return torch.stack(fields)


def _stacked(values: list[torch.Tensor]) -> np.ndarray:
    """Return values of some problems with a leading axis; of one without a copy."""
    stacked = values[0][None] if len(values) == 1 else torch.stack(values)
    return stacked.cpu().numpy()


_AROUND = 2  # nodes, of which one-sided differences at an outline need three


def asked_of(kept: LocalResult, problem: Problem, ask: Ask) -> Any:
    """Return a quantity of solutions; all ranks together.

    `ValueError` if the problem's data are other ones than when it was solved. `Unsupported` if not all of the field is
    there.
    """
    grid = kept.grid
    if kept.window != Window.whole(grid):
        raise Unsupported(
            "quantities are of the whole field, and this solution has a window of it: solve without window"
        )
    with Ranks.of(kept.given_ranks) as ranks:
        kept.require_fingerprint(problem, ranks)
        local = ranks.run_on_all(lambda: kept.local)
        group, _ = kept.group(ranks)
        share = GhostNodes(Partition(kept.boxes, group), _AROUND)
        # Beyond the grid there is something along periodic axes only.
        wide = common(
            share.ghosted,
            tuple(
                slice(-_AROUND, nodes + _AROUND) if around else slice(0, nodes)
                for nodes, around in zip(grid.nodes, kept.boxes.periodic, strict=True)
            ),
        )
        sides = problem.conditions
        periodic = without_slope(sides, grid, share.owned, local)
        values = [share.at(wide, share.with_ghosts(own)) for own in periodic]
        slope = mean_slope(sides, grid, wide)
        if slope is not None:
            values = [around + slope for around in values]
        members = kept.members
        shape = (len(values), *(p.stop - p.start for p in wide))
        field = FieldOnRank(
            grid,
            problem.some(range(members.start, members.stop)) if kept.problems > 1 else problem,
            kept.problems,
            members,
            share.owned,
            wide,
            np.stack(values) if values else np.zeros(shape),
            ranks.sum,
            ranks.allgather,
        )
        return ask(field)
