"""The group ``/VTKHDF`` of a solution file, by which ParaView opens it: its arrays are links, nothing is copied."""

from collections.abc import Mapping, Sequence

import h5py
import numpy as np

GHOSTS = "VTKHDF/PointData/vtkGhostType"
"""Flags of the nodes that ParaView hides."""
HIDDEN = 2
"""The flag of a hidden node."""


def present_to_vtk(
    file: h5py.File,
    apart: Sequence[float],
    origin: Sequence[float],
    leading: Mapping[str, int],
) -> None:
    """Describe ``/solution`` as what ParaView reads, from ``origin``, nodes ``apart`` along each axis; values are not copied.

    ``leading``: the lengths of the axes ``time`` and ``problem``, those that there are. Problems in the plane are a stack, as
    far apart as nodes along x. In space, where nothing is beside a box, they are steps; with steps in time each is an array.
    """
    solution, axes = file["solution"], len(apart)
    problems = leading.get("problem", 1)
    planes, y, x = (problems, *solution.shape[-axes:])[-3:]
    steps = file["time"][()] if "time" in leading else None
    if axes == 3 and problems > 1 and steps is None:
        steps = np.arange(problems, dtype=float)
    image = file.create_group("VTKHDF")
    image.attrs["Version"] = np.array([2, 0], dtype="i8")
    image.attrs.create("Type", b"ImageData", dtype=h5py.string_dtype("ascii", 9))
    image.attrs["WholeExtent"] = np.array([0, x - 1, 0, y - 1, 0, planes - 1], dtype="i8")
    image.attrs["Origin"] = np.array([*origin[::-1], 0.0][:3])
    image.attrs["Spacing"] = np.array([*apart[::-1], apart[-1] if planes > 1 else 1.0][:3])
    image.attrs["Direction"] = np.eye(3).ravel()
    data, names = image.create_group("PointData"), ["solution"]
    if axes == 3 and len(leading) > 1:
        names = [f"problem{number}" for number in range(problems)]
        shape = len(file["time"]), *solution.shape[-axes:]
        for number, name in enumerate(names):
            layout = h5py.VirtualLayout(shape, solution.dtype)
            source = h5py.VirtualSource(".", "solution", solution.shape, solution.dtype)
            layout[...] = source[:, number]
            data.create_virtual_dataset(name, layout, fillvalue=np.nan)
    else:
        data["solution"] = solution
    if steps is not None:
        played = image.create_group("Steps")
        played.attrs["NSteps"] = np.int64(len(steps))
        played["Values"] = steps
        for name in names:
            played[f"PointDataOffsets/{name}"] = np.arange(len(steps))
