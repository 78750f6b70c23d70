"""The effective conductivity of a medium of voxels: an image, to what it conducts as a whole.

```python
import numpy as np
import mosaicdd as m

image = np.load("pores.npy")  # (nz, ny, nx): True where it conducts
print(m.effective(image, spacing=1e-6))
```
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mosaicdd.axes import Slices, all_of, common, times, within
from mosaicdd.homogenisation.effective_conductivity import (
    NO_PATH,
    AxisConductivity,
    Effective,
    FlowJudge,
    ThroughFlow,
    shown,
)
from mosaicdd.homogenisation.summary import Paths, Summary, with_copies
from mosaicdd.homogenisation.voxels import Voxels
from mosaicdd.parallel.machine import give_back_memory, prepare_memory, require_memory
from mosaicdd.parallel.partition import share
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.report.progress import Progress, followed
from mosaicdd.settings import require_type
from mosaicdd.solvers.multigrid.biconjugate_gradients import try_out
from mosaicdd.solvers.multigrid.conjugate_gradients import FlexibleGradients
from mosaicdd.solvers.multigrid.level_partition import LevelBox, LevelPartition
from mosaicdd.solvers.multigrid.node_system import CONTRAST, NodeEquations
from mosaicdd.solvers.settings import OUT_OF_ITERATIONS
from mosaicdd.torch_defaults import on_processor

_BYTES = 95  # of a voxel, at the most, in space
_KEPT = 8  # of a voxel of a cell for the values along each axis that was solved for before
_LEAST = (
    5  # voxels of a rank along an axis that is shared: as many as it has copies of others', and one
)
# Times that the iteration goes on where the flows agree and the error is not bounded: with aggregates they always agree.
_AGAIN = 12
# Ratio up to which levels are float32 where flows alone are asked for, and the iterations in which these have to agree: the errors of
# conductors that no flow passes through are in none. SPE10's model, of 1.2e8, takes as many as in float64.
_CONTRAST, _ITERATIONS = 1e9, 100


@on_processor()
def effective(
    medium: Any,
    spacing: float | Sequence[float] | Mapping[str, float] | None = None,
    *,
    axis: str | None = None,
    periodic: bool = False,
    rtol: float = 1e-5,
    max_iterations: int = 1000,
    field: bool = False,
    ranks: Any = None,
    progress: Progress | bool | None = None,
) -> Effective:
    """Return the effective conductivity of a medium along its axes.

    For each axis the values 1 and 0 are given on the two faces across it, half a voxel from the first middles; the other faces are
    closed. Or the medium is a periodic cell, and values fall by 1 from it to the next one along the axis; what flows along the
    other axes, too, makes the columns of a tensor. Unknowns are in the voxels' middles, and fluxes between them are those of two
    half voxels in series.

    Parameters
    ----------
    medium
        Conductivities per voxel, ``(nz, ny, nx)``, or ``(ny, nx)`` in the plane; 0 where nothing conducts, so a mask
        of what conducts is one. Where they differ along the axes, one array for each, by name: ``{"x": kx, "y": ky, "z":
        kz}``. On several ranks all have all of it; a memory-mapped file will do.
    spacing
        The side of a voxel; or one per axis, in the order of arrays or by name. By default how far apart the medium's
        coordinates are, where it has any, as xarray's arrays, else 1.
    axis
        ``"x"``, ``"y"`` or ``"z"``; by default all of them, one after another.
    periodic
        Whether the medium repeats itself along all axes.
    rtol
        How far what flows in and what flows out may be apart, and how large the bound of the conductivity's error
        may be, relative to the conductivity.
    max_iterations
        For each axis.
    field
        Whether to keep the values at the voxels' middles; of a periodic cell they are 0.5 in the mean.
    ranks
        A communicator of mpi4py, or `Ranks`; by default this process alone.
    progress
        ``progress(fraction, note)``, called after every iteration; True draws a bar on stderr.

    Raises
    ------
    ValueError
        On all ranks, if the medium is none, or the ranks or their memory do not suffice.
    """
    require_type("field", field, bool)
    require_type("periodic", periodic, bool)
    if not 0 < rtol < 1:
        raise ValueError(f"rtol must be above 0 and below 1, got {rtol}")
    if max_iterations < 1:
        raise ValueError(f"max_iterations must be at least 1, got {max_iterations}")
    prepare_memory()
    world = Ranks.of(ranks)
    try:
        voxels = world.run_on_all(lambda: Voxels.of(medium, spacing, periodic))
        shapes = sorted(set(world.allgather(voxels.cell)))
        if len(shapes) > 1:
            raise ValueError(
                f"all ranks give the whole medium, got {' and '.join(map(times, shapes))} voxels"
            )
        if axis is not None and (
            not isinstance(axis, str) or axis not in voxels.names or len(axis) != 1
        ):
            raise ValueError(f"axis must be one of {', '.join(voxels.names)}, got {axis!r}")
        title = "effective conductivity"
        with followed(progress, title, quiet=not world.is_root) as show:
            solve = _Solve(world, voxels, rtol, max_iterations, field=field, show=show)
            return solve.along(axis or voxels.names)
    finally:
        if world is not ranks:
            world.close()


class _Solve:
    """Solves along axes of one medium."""

    def __init__(
        self,
        world: Ranks,
        voxels: Voxels,
        rtol: float,
        max_iterations: int,
        *,
        field: bool,
        show: Progress | None,
    ):
        self._voxels, self._rtol, self._max_iterations = voxels, rtol, max_iterations
        self._with_field, self._show = field, show
        self._ranks = ranks = world.run_on_all(lambda: _fitted(world, voxels.shape))
        count = math.prod(voxels.shape)
        bytes_of_cell = _KEPT * (voxels.axes - 1) * voxels.periodic
        require_memory(ranks, (_BYTES + bytes_of_cell) * count // ranks.size, "fewer voxels")
        start, stop = ranks.partition(voxels.shape)
        self._own: Slices = tuple(map(slice, start, stop))
        self._summary = Summary.of(ranks, voxels, self._own)
        full = self._summary.conducting == count
        self._paths = None if full else Paths(ranks, voxels, self._own)
        self._values: dict[int, torch.Tensor] = {}  # of a cell, along axes that were solved for

    def along(self, names: str) -> Effective:
        """Return the conductivities along some axes."""
        axes: dict[str, AxisConductivity] = {}
        for number, name in enumerate(names):
            begun = time.perf_counter()
            progress = self._show and shown(self._show, self._rtol, name, number, len(names))
            contrast = CONTRAST if self._with_field else _CONTRAST
            along = self._along(self._voxels.names.index(name), progress, contrast)
            along = replace(along, seconds=time.perf_counter() - begun)
            for other, earlier in axes.items():  # flows of both are known to the second order now
                if other in along.across:
                    across = earlier.across | {name: along.across[other]}
                    axes[other] = replace(earlier, across=across)
            axes[name] = along
            give_back_memory()
        return Effective(
            axes,
            self._voxels.cell,
            self._voxels.spacing,
            self._summary.volume_fraction,
            self._summary.hashin_shtrikman,
        )

    def _along(
        self,
        axis: int,
        progress: Callable[[int, float], None] | None,
        contrast: float,
    ) -> AxisConductivity:
        """Return the conductivity along an axis; ratios of conductances up to ``contrast`` are solved in float32."""
        voxels, summary, ranks = self._voxels, self._summary, self._ranks
        wiener = summary.harmonic[axis], summary.arithmetic[axis]
        connected_voxels = None if self._paths is None else self._paths.along(axis)
        floating = 0.0
        if connected_voxels is not None:
            (connected,) = ranks.sum(np.array([float(np.count_nonzero(connected_voxels))]))
            floating = 1 - connected / summary.conducting if summary.conducting else 0.0
            if not connected:
                across = self._across(axis, (0.0,) * voxels.axes, 0.0)
                tortuosity = math.inf if summary.one_conducts else None
                nothing = (0.0,) * 4
                return AxisConductivity(
                    *nothing, tortuosity, wiener, floating, NO_PATH, 0, 0.0, 0.0, across
                )
        rtol = self._rtol
        system, flow, largest = self._equations(axis, connected_voxels, contrast)
        daring = system.dtype == torch.float32 and system.scale > CONTRAST * system.least
        gradients = FlexibleGradients(system)
        try_out(gradients)
        b, size = flow.right_hand_side()
        x = system.vector()
        most = min(self._max_iterations, _ITERATIONS if daring else math.inf)
        judge = FlowJudge(flow, rtol, int(most), system, progress)
        status = ""
        for _ in range(_AGAIN):
            status = gradients(b, x, size, judge)
            _, _, energy = gradients.error()
            into, out, *through = flow(x)
            conducted = into - gradients.work(x)
            off = max(energy**2, abs(into - conducted), abs(out - conducted))
            if status != "converged_rtol" or off <= rtol * conducted:
                break
            if len(judge.history.update) >= most:
                status = OUT_OF_ITERATIONS
                break
            status = "stagnated"
            judge.go_on(rtol * conducted / off)
        tried = len(judge.history.update)
        if daring and status != "converged_rtol" and tried < self._max_iterations:
            return self._along(axis, progress, CONTRAST)
        error = energy**2
        if status != "converged_rtol":  # of a spectrum that little is known of
            error = max(error, abs(into - out))
        residual = judge.history.residual[-1]
        unit = self._unit(axis, axis) * largest
        conductivity = conducted * unit
        if voxels.periodic:
            for other, values in self._values.items():
                through[other] -= gradients.work(values)
            self._values[axis] = x
        return AxisConductivity(
            conductivity,
            error * unit,
            into * unit,
            out * unit,
            summary.arithmetic[axis] / conductivity if summary.one_conducts else None,
            wiener,
            floating,
            status,
            len(judge.history.residual),
            residual,
            0.0,
            self._across(axis, through, largest),
            self._field(axis, system, x, connected_voxels) if self._with_field else None,
        )

    def _unit(self, axis: int, other: int) -> float:
        """Return the factor from a flow along an axis to a conductivity."""
        sizes = self._voxels.sizes
        return sizes[axis] * sizes[other] / math.prod(sizes)

    def _across(self, axis: int, flows: Sequence[float], largest: float) -> dict[str, float]:
        """Return the mean fluxes of a cell along the other axes for a mean slope of 1."""
        if not self._voxels.periodic:
            return {}
        return {
            name: float(flows[other]) * self._unit(axis, other) * largest
            for other, name in enumerate(self._voxels.names)
            if other != axis
        }

    def _equations(
        self, axis: int, there: np.ndarray | None, contrast: float
    ) -> tuple[NodeEquations, ThroughFlow, float]:
        """Return the equations of the connected voxels, and the flow through the faces across an axis.

        The last is the conductance by which they are divided.
        """
        voxels, ranks = self._voxels, self._ranks
        ranges = [
            [(share.start, share.stop - 1) for share in _shares(count, dim)]
            for count, dim in zip(voxels.shape, ranks.dims, strict=True)
        ]
        blocks = LevelBox(ranks, LevelPartition(ranges, 2, (voxels.periodic,) * voxels.axes))
        box = tuple(slice(first, last + 1) for first, last in blocks.nodes.box)
        part = tuple(slice(b.start - 1, b.stop + 1) for b in box)
        if not voxels.periodic:
            part = common(part, all_of(voxels.shape))
        everywhere = None
        if there is not None:
            everywhere = voxels.conducts(
                part
            )  # right beyond the copies, too, where these are connected
            everywhere[within(box, part)] = with_copies(blocks, there)
        held = np.zeros((int(voxels.periodic), voxels.axes), int)
        if voxels.periodic and self._paths is not None:
            held = self._paths.first_voxels(axis)
        between, largest = voxels.network(
            ranks, part, everywhere, axis, self._summary.largest, held
        )
        start = [p.start for p in part]
        system = NodeEquations(blocks, between, start, everywhere, contrast=contrast)
        if voxels.periodic:

            def conductances(other: int, nodes: Slices) -> np.ndarray:
                k = between.along[other][within(nodes, part)]
                if self._paths is None or other == axis:
                    return k
                return k * self._paths.along(other, nodes)  # of what leads to its repetition alone

            flow = ThroughFlow.through_cell(system, axis, conductances, self._own, voxels.shape)
        else:
            faces = voxels.faces(axis, self._own)
            flow = ThroughFlow.from_face_to_face(system, faces, between.reaction, part)
        return system, flow, largest

    def _field(
        self, axis: int, system: NodeEquations, x: torch.Tensor, there: np.ndarray | None
    ) -> np.ndarray:
        """Return values at this rank's voxels."""
        box = tuple(slice(first, last + 1) for first, last in system.nodes.box)
        values = system.values(x)[within(self._own, box)]
        if there is not None:
            values = np.where(there, values, np.nan)
        return self._of_cell(axis, values) if self._voxels.periodic else values

    def _of_cell(self, axis: int, values: np.ndarray) -> np.ndarray:
        """Return this rank's values in the first cell, for a difference of 1 over it; all ranks together."""
        cell = self._voxels.cell
        ends = zip(cell, self._own, strict=True)
        values = values[tuple(slice(max(count - own.start, 0)) for count, own in ends)]
        sums = np.array([np.nansum(values), np.count_nonzero(~np.isnan(values))])
        total, count = self._ranks.sum(sums)
        return 0.5 + (values - total / count) * (self._voxels.shape[axis] // cell[axis])


def _fitted(world: Ranks, shape: tuple[int, ...]) -> Ranks:
    """Return the ranks on a process grid where each has voxels enough along each axis."""
    counts = tuple(max(count // _LEAST, 1) for count in shape)
    try:
        return world.fitted(counts)
    except ValueError:
        raise ValueError(
            f"{world.size} ranks do not fit {times(shape)} voxels, as each needs {_LEAST} along an axis that is shared; "
            f"use at most {math.prod(counts)}"
        ) from None


def _shares(count: int, ranks: int) -> list[range]:
    """Return the voxels of each rank of an axis."""
    return [range(*share(count, ranks, number)) for number in range(ranks)]
