"""The engine for media that are seen on a coarser grid: one coarse solve, one correction, a fill.

The coarse values ``U`` are filled to a field, whose residual in the fine equation tells what the coarse
one got wrong: shared out to the coarse nodes, ``r``, it gives the correction ``E`` with ``A_c E = r``. The
answer is the fill of ``U + E``. Of what that leaves, ``r'``, comes the correction ``E'`` that is not made any
more. If all further ones fell as these two do, by ``q = |E'| / |E|``, the error would be ``|E'| / (1 - q)``;
but what falls slowly remains, so once more it is taken over ``1 - q``. What is wrong beside the coarse nodes
is of the size of the residual over the diagonal. The estimate is three times the sum of both.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, within
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.upscaled import UpscaledSolver
from mosaicdd.local_solvers.upscaling import RATIO
from mosaicdd.parallel.watch import Watch
from mosaicdd.problems.sides.boundary import Boundary, edges_of
from mosaicdd.schwarz.base_engine import BaseEngine, SolveOptions
from mosaicdd.schwarz.engines import engine_of
from mosaicdd.schwarz.error_estimate import ErrorEstimate
from mosaicdd.schwarz.field_share import FieldShare
from mosaicdd.schwarz.fill import Strip
from mosaicdd.schwarz.results.outcome import Outcome
from mosaicdd.schwarz.upscaled.fine_fill import REACH, Band, Filled, Slot
from mosaicdd.schwarz.verdict import Evidence
from mosaicdd.unsupported import Unsupported

_ROWS = 64  # coarse cells of a band
_SAFETY = 3.0  # of estimates: benchmarks/field_networks.md has them beside the errors
_SLOWEST = 0.95  # rate of further corrections, at most
_CORRECTION = 1e-2  # relative residual of the correction, which is one digit of the answer at most


class UpscaledEngine(BaseEngine[UpscaledSolver]):
    """Solves boundary value problems in a medium that is seen on a coarser grid.

    `ValueError` if the ranks do not fit the lattice, the coefficients are not sound, or a network does not know the
    medium. `Unsupported` if the settings ask for what this method has not.
    """

    acceleration = "multigrid"

    def _prepare(self, lattice: Lattice, local_solver: UpscaledSolver) -> None:
        settings, ranks = self.settings, self._ranks
        if not self._wanted:
            raise Unsupported(f"{local_solver.name} gives fields only: leave out keep='interface'")
        self._grid = lattice.grid
        seen, solver = local_solver.medium.coarse_grid, local_solver.coarse
        self._lattice = Lattice(seen, solver.subdomain)
        loose = settings.with_changes(rtol=_CORRECTION)
        self._coarse, self._correcting = (
            engine_of(solver.method)(
                ranks, self._lattice, solver, how, problems=self.problems, clock=self.clock
            )
            for how in (settings, loose)
        )
        asked, outside = ranks.sum(np.array(local_solver.patches, dtype=float))
        local_solver.require_range(asked, outside)
        self._boundaries: Sequence[Boundary] = ()
        self.movement = self._coarse.movement
        self._near, self._around = (
            FieldShare(ranks, self._lattice, width) for width in (REACH, self._lattice.spacing)
        )
        self._own = self._near.own

    @property
    def unknowns(self) -> int:
        """Values of the coarse grid that are solved for."""
        return self._coarse.unknowns

    def interface_of_lines(self, lines: tuple[np.ndarray, ...] | None) -> Interface:
        """Hand every rank its part of the coarse grid's lines."""
        return self._coarse.interface_of_lines(lines)

    def _solve_many(self, boundaries: Sequence[Boundary], options: SolveOptions) -> list[Outcome]:
        # A start is the interface of the coarse grid, as a checkpoint holds it.
        clock = [time.perf_counter()]
        self._boundaries = boundaries
        thinned = [boundary.every(RATIO) for boundary in boundaries]
        coarse = self._approximate(thinned, options)
        values = self._moved(self._near, [approximation.field for approximation in coarse])
        first = self._corrections(self._residuals(values))
        values += self._moved(self._near, [outcome.field for outcome in first])
        clock.append(time.perf_counter())
        # What the fill leaves: at the coarse nodes; and squares of the residual, of the right-hand side, and of the
        # residual over the diagonal.
        shared, squares = self._coarse_zeros(), np.zeros((3, self.problems))
        fields = self._delivered(self._bands(values, shared, squares), options.sink)
        clock.append(time.perf_counter())
        r, b, local = np.sqrt(self._ranks.sum(squares))
        residuals: Sequence[float | None] = [None] * self.problems
        if self._window is None:
            residuals = (r / np.where(b > 0, b, 1.0)).tolist()
        local /= np.sqrt(np.prod([n - 1 for n in self._grid.shape]))
        estimates = self._estimates(first, self._corrections(shared), local)
        clock.append(time.perf_counter())
        iterate, assemble, estimate = np.diff(clock).tolist()
        seconds = {"iterate": iterate, "estimate": estimate, "assemble": assemble}
        return [
            self._outcome(
                approximation.status,
                Evidence(estimates[i].rms, approximation.size, residuals[i]),
                estimates[i],
                number=i,
                update=approximation.update,
                history=approximation.history,
                interface=approximation.interface,
                field=None if fields is None else fields[i],
                seconds=dict(seconds),
            )
            for i, approximation in enumerate(coarse)
        ]

    def _approximate(self, boundaries: Sequence[Boundary], options: SolveOptions) -> list[Outcome]:
        """Solve for boundary data at the coarse nodes, as `solve_many`."""
        with _without_fields(options.watch):
            outcomes = self._coarse.solve_many(
                boundaries,
                start=options.start,
                histories=options.histories,
                statuses=options.statuses,
                progress=options.progress,
                watch=options.watch,
                atol=options.atol,
            )
        self.acceleration = self._coarse.acceleration
        return outcomes

    def _moved(self, share: FieldShare, parts: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Move owned coarse values of all problems to those that hold them."""
        moved = [share.widened(part.cpu().numpy()) for part in parts if part is not None]
        return torch.from_numpy(np.stack(moved)).to(**self._tensors)

    def _coarse_zeros(self) -> torch.Tensor:
        shape = tuple(p.stop - p.start for p in self._own)
        return torch.zeros(self.problems, *shape, **self._tensors)

    def _residuals(self, values: torch.Tensor) -> torch.Tensor:
        """Return what the fill of coarse values leaves, shared out to the owned coarse nodes."""
        shared = self._coarse_zeros()
        for start in range(self._own[0].start, self._own[0].stop, _ROWS):
            stop = min(start + _ROWS, self._own[0].stop)
            band, nodes = self._band(start, stop, values)
            with self.clock.part("fill"):
                self._share(band.fill(nodes), start, stop, shared)
        return shared

    def _share(self, filled: Filled, start: int, stop: int, shared: torch.Tensor) -> None:
        """Share the residual in a band out to the owned coarse nodes of its rows."""
        skip, low = start - max(start - REACH, self._near.wide[0].start), self._own[0].start
        columns = within(self._own, self._near.wide)[1]
        rows = filled.restricted()[:, skip : skip + stop - start, columns]
        shared[:, start - low : stop - low] = rows

    def _corrections(self, shared: torch.Tensor) -> list[Outcome]:
        """Solve the coarse equation for residuals at the owned coarse nodes."""
        region = within(self._coarse.block.nodes, self._around.wide)
        force = self._moved(self._around, list(shared))[:, *region]
        zeros = [Boundary.zeros(self._lattice.grid)] * self.problems
        return self._correcting.solve_many(zeros, force=force)

    def _band(self, start: int, stop: int, values: torch.Tensor) -> tuple[Band, torch.Tensor]:
        """Return the fine medium around some rows of coarse nodes, and the values at these."""
        part, near = self._part(start, stop), self._near.wide[0]
        with self.clock.part("sample"):
            conductances = self._solver.operator.conductances(self._grid, part)
            f = self._solver.source.problem.source_at(self._grid, part)
        source = None
        if f is not None:
            source = torch.from_numpy(f).to(**self._tensors) * self._grid.spacing**2
        band = Band(conductances, source, self._edges_of(part))
        rows = slice(part[0].start // RATIO - near.start, part[0].stop // RATIO + 1 - near.start)
        return band, values[:, rows]

    def _part(self, start: int, stop: int) -> Slices:
        """Return the fine nodes around some rows of coarse ones that the fill of these depends on."""
        rows, columns = self._near.wide
        rows = slice(max(start - REACH, rows.start), min(stop + REACH, rows.stop))
        return tuple(slice(RATIO * p.start, RATIO * (p.stop - 1) + 1) for p in (rows, columns))

    def _edges_of(self, part: Slices) -> list[tuple[Slot, torch.Tensor]]:
        """Return the boundary data on the outermost nodes of a part that ends where the domain does."""
        edges = []
        for (axis, end), along, _ in edges_of(part, self._grid.nodes):
            values = np.stack([data.edges[axis, end][along] for data in self._boundaries])
            slot: Slot = (-end, slice(None)) if axis == 0 else (slice(None), -end)
            edges.append((slot, torch.from_numpy(values).to(**self._tensors)))
        return edges

    def _estimates(
        self, first: Sequence[Outcome], second: Sequence[Outcome], local: np.ndarray
    ) -> list[ErrorEstimate]:
        """Estimate the errors of fills from the correction made, the next one, and the local error."""
        inside = np.prod([n - 1 for n in self._lattice.grid.shape])
        squares = [
            [float(c.field.square().sum()) for c in corrections if c.field is not None]
            for corrections in (first, second)
        ]
        sizes = np.sqrt(self._ranks.sum(np.array(squares)) / inside)
        rate = np.minimum(sizes[1] / np.where(sizes[0] > 0, sizes[0], 1.0), _SLOWEST)
        growth = _SAFETY / (1.0 - rate) ** 2
        rms = growth * sizes[1] + _SAFETY * local
        return [
            ErrorEstimate(
                rms=float(rms[i]),
                interface=float(growth[i] * sizes[1][i]),
                nodes=growth[i] * correction.interface.nodes()[i].abs(),
                place=self.block.centres,
            )
            for i, correction in enumerate(second)
        ]

    def _bands(
        self, values: torch.Tensor, shared: torch.Tensor, squares: np.ndarray
    ) -> Iterator[Strip]:
        """Fill the field band by band, and add up what that leaves of the equation by the way."""
        rows, columns = self.block.owned_nodes()[1]
        for start in range(self._own[0].start, self._own[0].stop, _ROWS):
            stop = min(start + _ROWS, self._own[0].stop)
            band, coarse = self._band(start, stop, values)
            with self.clock.part("fill"):
                filled = band.fill(coarse)
                u = filled.values()
            part = self._part(start, stop)
            own = slice(RATIO * start, min(RATIO * stop, rows.stop)), columns
            unknown = tuple(
                slice(max(p.start, 1), min(p.stop, n - 1))
                for p, n in zip(own, self._grid.nodes, strict=True)
            )
            with self.clock.part("check"):
                self._share(filled, start, stop, shared)
                squares[:] += filled.squares(within(unknown, part))
            around = tuple(
                slice(max(p.start - 1, w.start), min(p.stop + 1, w.stop))
                for p, w in zip(own, part, strict=True)
            )
            yield Strip(u[:, *within(around, part)], within(own, around), own)


@contextmanager
def _without_fields(watch: Watch | None) -> Iterator[None]:
    """Let checkpoints hold lines alone, as fields of the coarse grid are none of the problem's."""
    save = None if watch is None else watch.save
    if watch is None or save is None:
        yield
        return
    watch.save = lambda v, histories, field, *more: save(v, histories, None, *more)
    try:
        yield
    finally:
        watch.save = save
