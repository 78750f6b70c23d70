"""Tensors given per cell, on any axes: the energy of their rises along the edges of faces, cell by cell."""

import itertools

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve


def energy_of(cells, sides, fields):
    """Return the matrix of the energy of all nodes of a rectangle or box."""
    axes, volume = len(cells), np.prod(sides)
    nodes = np.arange(np.prod([n + 1 for n in cells])).reshape([n + 1 for n in cells])
    corners, letters = list(itertools.product((0, 1), repeat=axes)), "zyx"[-axes:]
    number = {corner: k for k, corner in enumerate(corners)}

    def rise(axis, at):
        """Return the derivative along an edge of a cell."""
        row = np.zeros(len(corners))
        for end in (0, 1):
            row[number[(*at[:axis], end, *at[axis + 1 :])]] = (2 * end - 1) / sides[axis]
        return row

    def edges(axis):
        return [rise(axis, at) for at in corners if not at[axis]]

    def faces(i, j):
        """Return the mean rises along both axes of each face that has them."""
        for at in corners:
            if not (at[i] or at[j]):
                beside = [tuple(1 if axis == k else n for axis, n in enumerate(at)) for k in (i, j)]
                along = (
                    (rise(i, at) + rise(i, beside[1])) / 2,
                    (rise(j, at) + rise(j, beside[0])) / 2,
                )
                yield np.outer(*along)

    forms = {}
    for i in range(axes):
        own = sum(np.outer(row, row) for row in edges(i))
        forms["a" + 2 * letters[i]] = own / 2 ** (axes - 1)
    for i, j in itertools.combinations(range(axes), 2):
        both = sum(faces(i, j))
        forms["a" + letters[j] + letters[i]] = (both + both.T) / 2 ** (axes - 2)
    rows, columns, entries = [], [], []
    for cell in np.ndindex(*cells):
        energy = sum(fields[name][cell] * form for name, form in forms.items())
        places = [nodes[tuple(np.add(cell, c))] for c in corners]
        rows += list(np.repeat(places, len(corners)))
        columns += list(np.tile(places, len(corners)))
        entries += list(volume * energy.ravel())
    return sp.csr_array((entries, (rows, columns)))


def driven_from_the_right(cells, sides, fields):
    """Return matrix and solution of zeros on the left, where a flux of 1 flows in on the right."""
    matrix, nodes = energy_of(cells, sides, fields), tuple(n + 1 for n in cells)
    loads, field = np.zeros(nodes), np.zeros(nodes)
    for at in itertools.product((0, 1), repeat=len(cells) - 1):
        place = tuple(slice(first, first + n) for first, n in zip(at, cells, strict=False))
        loads[(*place, -1)] += np.prod(sides[:-1]) / 2 ** (len(cells) - 1)
    unknown = np.flatnonzero(np.indices(nodes)[-1].ravel() > 0)
    field.ravel()[unknown] = spsolve(matrix[unknown][:, unknown].tocsc(), loads.ravel()[unknown])
    return matrix, field
