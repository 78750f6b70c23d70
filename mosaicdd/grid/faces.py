"""The order of the nodes on the perimeter of a rectangle, or on the surface of a box.

Points are (y, x) in cells, counted from the lower-left corner. A perimeter is made of *faces*, one for
each end of each axis, which hold each node once. That of a square of ``m`` cells a side has ``4 m``
nodes, counter-clockwise from the lower-left corner, as files and networks have it. With other numbers
of axes the faces come axis by axis, and a node is in the first of them that it lies on.
"""

from typing import NamedTuple

import numpy as np

from mosaicdd.axes import at, others


class Face(NamedTuple):
    """The nodes of a perimeter that lie at one end of an axis.

    Parameters
    ----------
    axis, end
        Where: constant in which axis, at its low (0) or its high end (1).
    spans
        Along each other axis, the first node and the number of nodes.
    backwards
        Whether they are run through from the high to the low end of the other axis.
    """

    axis: int
    end: int
    spans: tuple[tuple[int, int], ...]
    backwards: bool = False


def perimeter_faces(shape: tuple[int, ...]) -> list[Face]:
    """Return the faces of a rectangle, or box, of so many cells per axis, in the order of its perimeter."""
    axes = len(shape)
    if axes == 2:
        ny, nx = shape
        return [
            Face(0, 0, ((0, nx),)),
            Face(1, 1, ((0, ny),)),
            Face(0, 1, ((1, nx),), backwards=True),
            Face(1, 0, ((1, ny),), backwards=True),
        ]
    return [
        Face(
            axis,
            end,
            tuple((1, shape[k] - 1) if k < axis else (0, shape[k] + 1) for k in others(axis, axes)),
        )
        for axis in range(axes)
        for end in (0, 1)
    ]


def perimeter_nodes(shape: tuple[int, ...]) -> np.ndarray:
    """Return the perimeter of a rectangle, or box, of so many cells per axis, ``(P, axes)`` integers."""
    axes, faces = len(shape), []
    for axis, end, spans, backwards in perimeter_faces(shape):
        nodes = np.empty((*(count for _, count in spans), axes), int)
        nodes[..., axis] = end * shape[axis]
        for place, (other, (first, count)) in enumerate(
            zip(others(axis, axes), spans, strict=True)
        ):
            along = np.arange(first, first + count)
            nodes[..., other] = along.reshape(at(place, axes - 1, -1, 1))
        nodes = nodes.reshape(-1, axes)
        faces.append(nodes[::-1] if backwards else nodes)
    return np.concatenate(faces)
