"""Media whose coefficient is given per cell, on any axes: the equations of all nodes, written anew from what each cell has."""

import itertools

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import spsolve


def volumes_of(domain):
    """Return the control volumes of all nodes of a rectangle or box, parts of them on sides."""
    return equations(np.ones(domain.cells), domain.grid().steps)[1]


def equations(a, steps):
    """Return the matrix of what flows out of each node, and the nodes' volumes.

    Each corner of a cell has a part of its volume, and of the faces of the three (two) edges there; a cell of ``a`` 0 is none.
    """
    nodes, axes, volume = tuple(n + 1 for n in a.shape), a.ndim, np.prod(steps)
    number, volumes, entries = np.arange(np.prod(nodes)).reshape(nodes), np.zeros(nodes), []
    for corner in itertools.product((0, 1), repeat=axes):
        place = tuple(slice(at, at + n) for at, n in zip(corner, a.shape, strict=True))
        volumes[place] += (a > 0) * volume / 2**axes
        for axis in range(axes):
            other = list(place)
            other[axis] = slice(1 - corner[axis], 1 - corner[axis] + a.shape[axis])
            k = (a * volume / steps[axis] ** 2 / 2 ** (axes - 1)).ravel()
            here, there = number[place].ravel(), number[tuple(other)].ravel()
            entries += [(here, here, k), (here, there, -k)]
    row, column, value = (np.concatenate(each) for each in zip(*entries, strict=True))
    return scipy.sparse.coo_array((value, (row, column))).tocsr(), volumes


def field_and_flows(matrix, diagonal, b, known):
    """Return the solution, and what flows out at each node: with more on the diagonal, and values given where not NaN."""
    matrix = matrix + scipy.sparse.diags_array(diagonal.ravel())
    u, free = np.nan_to_num(known.ravel()), np.isnan(known.ravel()) & (matrix.diagonal() > 0)
    u[free] = spsolve(matrix[free][:, free].tocsc(), (b.ravel() - matrix @ u)[free])
    return u.reshape(known.shape), (b.ravel() - matrix @ u).reshape(known.shape)
