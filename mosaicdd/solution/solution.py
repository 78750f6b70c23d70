"""Solutions: fields, their errors, and their quantities."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mosaicdd.discretisation.given_conditions import sides_of
from mosaicdd.grid.window import Placed, Window, as_points, interpolate, interpolate_within, on_grid
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.shape import has_values
from mosaicdd.quantities.quantities import Ask, Quantified
from mosaicdd.report.presented import Presented
from mosaicdd.report.stored import StoredSolution, read_all
from mosaicdd.solution.kept import LEFT_OUT, OVER_RANKS, LocalResult, asked_of
from mosaicdd.solution.output import describe, require_one_problem, write_part
from mosaicdd.solution.report import Result
from mosaicdd.solvers.outcome import History
from mosaicdd.solvers.settings import CONVERGED, Output
from mosaicdd.storage.inputs import inputs_of
from mosaicdd.storage.shards import require_shard_folder
from mosaicdd.storage.solution_writer import ERRORS, OUTSIDE, SolutionWriter
from mosaicdd.tensors import read_only
from mosaicdd.torch_defaults import on_processor
from mosaicdd.unsupported import Unsupported


class Solution(Placed, Quantified, Presented):
    """The solutions of one or several problems; every rank has its own part.

    Arrays are numpy's, or torch's if the problem's were; of several problems they have a leading axis.
    On several ranks all methods but `report`'s are called by all of them together, as `gather`, `at`, `save` and
    `flow`; no property sends anything.

    Attributes
    ----------
    problem
        What was solved.
    report
        All that ``solve --json`` prints, by name; of several problems the worst of each number.
    results
        How each problem ended.
    kept
        What this rank has of it, from which another solve can begin.
    checkpoint
        From which a solve that was interrupted, or out of iterations, can go on, if there is one.
    """

    def __init__(
        self,
        problem: Problem,
        kept: LocalResult,
        report: dict,
        results: Sequence[Result],
        *,
        checkpoint: Path | None = None,
    ):
        self.problem = problem
        self.report = report
        self.checkpoint = checkpoint
        self.results = list(results)
        self.kept = kept
        self._whole: dict[str, np.ndarray | None] = {}
        self._like = _tensor_of(problem)

    # How it went

    @property
    def status(self) -> str:
        """How it ended; of several problems the worst.

        One of ``converged_rtol``, ``converged_atol``, ``converged_rounding``, ``stagnated``,
        ``diverged_max_iterations``, ``diverged_tolerance``, ``diverged_nan``, ``interrupted``.
        """
        return self.report["status"]

    @property
    def converged(self) -> bool:
        """Whether all problems met the stopping rule."""
        return self.status in CONVERGED

    @property
    def iterations(self) -> int:
        """Iterations done, of the problem that took most."""
        return self.report["iterations"]

    @property
    def error_estimate(self) -> float:
        """Estimated root mean square distance to the discrete solution; the largest of several."""
        return self.report["error_estimate"]

    @property
    def history(self) -> History | list[History]:
        """Numbers per iteration; of several problems a list."""
        histories = [result.history for result in self.results]
        return histories[0] if len(histories) == 1 else histories

    @property
    def seconds(self) -> dict[str, float]:
        """Where the time of this rank has gone, by part, ``total`` among them."""
        return self.report["seconds"]

    @property
    def problems(self) -> int:
        """The number of problems."""
        return len(self.results)

    # Fields

    def coordinates(self, axis: int) -> np.ndarray:
        """Return where the nodes of the field lie along an axis, in units of domain length."""
        return self.kept.window.coordinates(self.kept.grid, axis)

    @property
    def field(self) -> Any:
        """The whole field ``(ny + 1, nx + 1)``, in space ``(nz + 1, ny + 1, nx + 1)``, or the window that was asked for.

        Read-only, as quantities are of it: change a ``copy()``. A tensor is one.

        Raises
        ------
        RuntimeError
            If it lies over several ranks and they have not called `gather`, or was left out.
        """
        if not self._at_hand:
            raise RuntimeError(OVER_RANKS.format(ranks=self.report["ranks"]))
        return self._shown(self._field)

    def gather(self) -> Any:
        """Return the whole field on every rank; all ranks together.

        Each of several ranks holds it from then on, as `field`; `local` takes no messages and no memory.
        """
        return self._shown(self._field)

    @property
    def _at_hand(self) -> bool:
        """Whether this rank has the whole field."""
        alone = self.report["ranks"] == 1 or self.kept.path is not None
        return alone or "solution" in self._whole

    @property
    def _field(self) -> np.ndarray:
        """The whole fields, ``(n, rows, columns)``."""
        if (fields := self._gathered("solution")) is None:
            raise RuntimeError(LEFT_OUT)
        return fields

    @property
    def local(self) -> Any:
        """The part of the field that this rank has; `place` says where it belongs in that."""
        return self._shown(self.kept.local)

    @property
    def place(self) -> tuple[slice, ...]:
        """Where `local` belongs in `field`: a slice per axis."""
        several = (self.kept.members,) if self.problems > 1 else ()
        return *several, *self.kept.place

    def _given(self, array: np.ndarray) -> Any:
        """Return an array ``(n, ...)`` as the user has his own: of one problem without that axis."""
        array = array[0] if self.problems == 1 else array
        like = self._like
        return array if like is None else torch.from_numpy(array).to(like.device)

    def _shown(self, array: np.ndarray) -> Any:
        return read_only(self._given(array))

    def _gathered(self, name: str) -> np.ndarray | None:
        """Return a quantity of the whole domain and of all problems, on every rank."""
        if name not in self._whole:
            self._whole[name] = self.kept.gather(name)
        return self._whole[name]

    def at(self, points: Any) -> Any:
        """Return the values at points anywhere in the domain.

        By the network where one solved an equation without a source; else interpolated linearly along each axis from
        the nodes, which is as good as the discretisation: of second order in the spacing. Outside of a
        domain that is no rectangle they are NaN; in the cells that its outline cuts, where some nodes
        are outside, they are means of those inside.

        Parameters
        ----------
        points
            ``(q, 2)``, (x, y), in space ``(q, 3)``, (x, y, z), in units of domain length.

        Returns
        -------
        array
            ``(q,)``; of several problems ``(n, q)``.

        Raises
        ------
        ValueError
            If they are not points, or one lies outside of the domain, or of the window.
        """
        grid = self.kept.grid
        cells = on_grid(as_points(points, len(grid.shape)), grid)
        network, shape = self.kept.network, self.problem.domain.shape
        if shape is not None:
            window, fields = self.kept.window, self._field
            level = shape.level(grid, window.place)
            inside = np.any(has_values(shape, grid, window.place, fields), axis=0)
            values = interpolate_within(fields, inside, level, cells - np.array(window.start))
        elif network is None:
            values = interpolate(self._field, cells - np.array(self.kept.window.start))
        else:
            values = self.kept.at(network, cells)
        return self._given(values if self.problems > 1 else values[:1])

    @on_processor()
    def _asked(self, ask: Ask) -> Any:
        """Return a quantity of the fields; all ranks together."""
        return asked_of(self.kept, self.problem, ask)

    @property
    def _spacing(self) -> float:
        return min(self.kept.grid.steps)

    def _handed(self, array: np.ndarray) -> Any:
        return self._shown(array)

    # Beyond this process

    def save(self, path: str | PathLike, *, shards: bool = False, overwrite: bool = False) -> None:
        """Write a solution file, as ``mosaicdd solve`` does; all ranks together.

        Parameters
        ----------
        shards
            Whether every rank writes its part of the field of one problem to a file of its own.
        overwrite
            Whether a file of this name that mosaicdd has not written may be replaced, too.

        Raises
        ------
        OSError
            If it cannot be written, or is not to be replaced, on all ranks; what was there before stays.
        RuntimeError
            If the solver wrote the solution to a file already and kept nothing.
        Unsupported
            If several problems are to be written in shards or without their fields, or shards of a
            field that was left out.
        """
        kept = self.kept
        if kept.path is not None:
            raise RuntimeError(f"the solution was written to {kept.path} and is kept there only")
        lines = self.report["keep"] == "interface"
        if shards and lines:
            raise Unsupported(f"shards=True: {LEFT_OUT}")
        require_one_problem(self.problems, {"shards=True": shards, "keep='interface'": lines})
        output = Output(path, shards=shards, overwrite=overwrite)
        with Ranks.of(kept.given_ranks) as ranks:
            ranks.on_root(lambda: output.require_path(inputs_of(self.problem)))
            kept.require_fingerprint(self.problem, ranks)
            if shards:
                ranks.on_root(lambda: require_shard_folder(path))
            group, index = kept.group(ranks)
            with SolutionWriter(path, kept, kept.boundaries, self.problem, ranks=ranks) as file:
                write_part(file, kept, group, shards=shards)
                file.inputs(tuple(slice(0, 0) for _ in kept.own) if index else kept.own)
                describe(file, self.report, self.results)

    def each(self) -> list[StoredSolution]:
        """Return the solution of each problem, as a file has it; all ranks together.

        Raises
        ------
        ValueError
            If the problem's data are other ones than when it was solved; so do `save` and what shows it.
        """
        if self.kept.path is not None:
            return list(read_all(self.kept.path))
        with Ranks.of(self.kept.given_ranks) as ranks:
            self.kept.require_fingerprint(self.problem, ranks)
        for name in ("solution", ERRORS, OUTSIDE):
            self._gathered(name)
        return [self._of_problem(number) for number in range(self.problems)]

    def _of_problem(self, number: int) -> StoredSolution:
        own, kept, problem = self.results[number], self.kept, self.problem
        histories = dataclasses.asdict(own.history).items()
        return StoredSolution(
            arrays=partial(self._array, number),
            grid=kept.grid,
            sides=kept.boundaries[number]
            if problem.plain
            else sides_of(problem, kept.grid, number),
            window=kept.window,
            history={name: np.array(values) for name, values in histories},
            attributes={k: v for k, v in self.report.items() if k != "problems"} | own.report,
            numbers=problem.numbers,
            coefficients=tuple(problem.arrays),
            shape=problem.domain.shape,
            number=number,
            problems=self.problems,
            lattice_start=kept.samples.first,
            lattice_step=kept.samples.step,
            foils={n: f.foils.table for n, f in problem.arrays.items() if f.foils is not None},
        )

    def _array(self, number: int, name: str, *place: slice | int) -> np.ndarray | None:
        """Return an array of a problem, or a part of it, as `SolutionArrays` does of a file."""
        problem, grid = self.problem, self.kept.grid
        _, _, coefficient = name.partition("fields/")
        values = None if coefficient else self._gathered(name)
        if coefficient:
            whole, is_rectangle = Window.whole(grid).place, problem.domain.shape is None
            values = problem.arrays[coefficient].sample_as_given(grid, whole, checked=is_rectangle)
        return None if values is None else values[number % len(values)][place]

    def _first(self) -> StoredSolution:
        return self._of_problem(0)

    def _picture(self) -> str:
        return super()._picture() if self._at_hand and self.report["keep"] == "field" else ""

    def __repr__(self) -> str:
        cells = "x".join(map(str, self.report["grid"]))
        several = f"{self.problems} problems, " if self.problems > 1 else ""
        return (
            f"<Solution of {self.report['pde']} on {cells} cells by "
            f"{self.report['local_solver']}: {several}{self.status} after {self.iterations} "
            f"iterations, error estimate {self.error_estimate:.1e}>"
        )


def _tensor_of(problem: Problem) -> torch.Tensor | None:
    """Return one of the problem's own tensors, if it has any."""
    sides = problem.sides.values() if isinstance(problem.sides, Mapping) else [problem.sides]
    inputs = [*problem.fields.values(), *(getattr(side, "values", None) for side in sides)]
    return next((values for values in inputs if isinstance(values, torch.Tensor)), None)
