"""What ParaView reads: fields of a file presented as VTKHDF ImageData; values are linked, not copied."""

from collections.abc import Sequence

import h5py
import numpy as np


def present_to_vtk(
    file: h5py.File, nodes: Sequence[int], spacing: float, origin: Sequence[float] = (0.0, 0.0)
) -> None:
    """Describe ``/solution`` of an open file.

    Parameters
    ----------
    nodes
        ``(y, x)``, or ``(n, y, x)`` for several problems: a plane for each.
    spacing
        Of the nodes, and of the planes, in units of domain length.
    origin
        Where the first node lies, ``(y, x)``.
    """
    planes, y, x = nodes if len(nodes) == 3 else (1, *nodes)
    image = file.create_group("VTKHDF")
    image.attrs["Version"] = np.array([2, 0], dtype="i8")
    image.attrs.create("Type", b"ImageData", dtype=h5py.string_dtype("ascii", 9))
    image.attrs["WholeExtent"] = np.array([0, x - 1, 0, y - 1, 0, planes - 1], dtype="i8")
    image.attrs["Origin"] = np.array([origin[1], origin[0], 0.0])
    image.attrs["Spacing"] = np.array([spacing, spacing, spacing if planes > 1 else 1.0])
    image.attrs["Direction"] = np.eye(3).ravel()
    image.create_group("PointData")["solution"] = file["solution"]
