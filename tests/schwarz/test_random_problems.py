"""Random problems of whatever goes together, beside matrices that are put together here, cell by cell."""

import itertools

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import mosaicdd as m

SIDES = {2: (("bottom", "top"), ("left", "right"))}
SIDES[3] = (("back", "front"), *SIDES[2])


def drawn(seed):
    """Return cells, steps, fields, sides as kinds with values, a mask of voxels or None, and what is held or None."""
    rng = np.random.default_rng(seed)
    axes = int(rng.integers(2, 4))
    cells = tuple(int(n) for n in rng.integers(5, 10 if axes == 3 else 20, axes))
    steps = tuple(rng.uniform(0.05, 0.3, axes)) if rng.random() < 0.5 else (0.1,) * axes
    nodes = tuple(n + 1 for n in cells)
    contrast = 10.0 ** rng.integers(1, 5)
    a = contrast ** (rng.random(nodes if rng.random() < 0.5 else cells) - 0.5)
    fields = {"a": a, "f": rng.standard_normal(nodes)}
    if rng.random() < 0.5:
        fields["c"] = rng.random(nodes) * (rng.random(nodes) < 0.5)
    mask = rng.random(cells) < 0.8 if axes == 3 and rng.random() < 0.5 else None
    sides, held = {}, rng.random(nodes) < 0.1
    for axis, pair in enumerate(SIDES[axes]):
        if mask is None and rng.random() < 0.5 and cells[axis] >= (9 if axes == 3 else 17):
            sides |= dict.fromkeys(pair, ("periodic", 0.0, 0.0))
            ends = np.moveaxis(held, axis, 0)
            ends[-1] = ends[0]
            continue
        for side in pair:
            kind = str(rng.choice(["value", "flux", "exchange"]))
            sides[side] = kind, rng.standard_normal(), 10.0 ** rng.integers(-1, 3)
    if mask is not None:
        sides["outline"] = "exchange", rng.standard_normal(), 2.0
    return cells, steps, fields, sides, mask, held if mask is None else None


def assembled(cells, steps, fields, sides, mask, held):
    """Return the solution by a sparse factorisation, NaN where there are no cells."""
    axes, nodes = len(cells), tuple(n + 1 for n in cells)
    volume, number = float(np.prod(steps)), np.arange(np.prod(nodes)).reshape(nodes)
    mask = np.ones(cells, bool) if mask is None else mask
    a, f = fields["a"], fields["f"]
    c = fields.get("c", np.zeros(nodes))
    entries, b = [], np.zeros(nodes)
    diagonal, volumes = np.zeros(nodes), np.zeros(nodes)
    count = np.zeros(nodes, int)
    same = number.copy()
    for axis in range(axes):
        if sides.get(SIDES[axes][axis][0], ("",))[0] == "periodic":
            ends = np.moveaxis(same, axis, 0)
            ends[-1] = ends[0]
    for corner in itertools.product((0, 1), repeat=axes):
        of_cells = tuple(slice(at, at + n) for at, n in zip(corner, cells, strict=True))
        volumes[of_cells] += mask * volume / 2**axes
    for axis, corner in itertools.product(range(axes), itertools.product((0, 1), repeat=axes)):
        pair = SIDES[axes][axis]
        area = volume / steps[axis] / 2 ** (axes - 1)
        for at in np.argwhere(mask):  # the face, or edge, of a cell there
            node = tuple(at + corner)
            end = corner[axis]
            if not end:
                far = tuple(n + (i == axis) for i, n in enumerate(node))
                k = a[tuple(at)] if a.shape == cells else 2 / (1 / a[node] + 1 / a[far])
                i, j, k = same[node], same[far], k * area / steps[axis]
                entries += [(i, i, k), (j, j, k), (i, j, -k), (j, i, -k)]
            beside = tuple(n + (2 * end - 1) * (i == axis) for i, n in enumerate(at))
            inside = 0 <= beside[axis] < cells[axis]
            if inside and mask[beside]:
                continue
            kind, g, alpha = sides["outline" if inside else pair[end]]
            if kind == "value":
                count[node] |= 1 << (2 * axis + end)
            if kind in ("flux", "exchange"):
                b[node] += area * g
                diagonal[node] += area * alpha * (kind == "exchange")
    values = np.zeros(nodes)
    for axis, end in itertools.product(range(axes), (0, 1)):
        values += ((count >> (2 * axis + end)) & 1) * sides.get(SIDES[axes][axis][end], ("", 0.0))[
            1
        ]
    places = np.bitwise_count(count).astype(int)
    if held is not None:
        values, places = values + 0.5 * held, places + held
    known = places > 0
    values = np.where(known, values / np.maximum(places, 1), 0.0)
    b += f * volumes
    rows, columns, k = zip(*entries, strict=True)
    matrix = scipy.sparse.coo_array((k, (rows, columns)), shape=(number.size,) * 2).tocsr()
    matrix = matrix + scipy.sparse.diags_array(
        np.bincount(same.ravel(), (diagonal + c * volumes).ravel(), number.size)
    )
    b = np.bincount(same.ravel(), b.ravel(), number.size)
    shares = np.bincount(same[known], minlength=number.size)
    u = np.bincount(same[known], values[known], number.size) / np.maximum(shares, 1)
    fixed = shares > 0
    free = np.setdiff1d(same[volumes > 0], np.flatnonzero(fixed))
    u[free] = scipy.sparse.linalg.spsolve(
        matrix[free][:, free].tocsc(), b[free] - matrix[free] @ (u * fixed)
    )
    return np.where(volumes > 0, u[same], np.nan)


@pytest.mark.parametrize("seed", range(10))
def test_solutions_are_those_of_matrices(seed):
    cells, steps, fields, sides, mask, held = drawn(seed)
    kinds = {
        "value": lambda g, _: m.Dirichlet(g),
        "flux": lambda g, _: m.Neumann(g),
        "exchange": lambda g, alpha: m.Robin(alpha, g),
        "periodic": lambda *_: m.Periodic(),
    }
    conditions = {side: kinds[kind](g, alpha) for side, (kind, g, alpha) in sides.items()}
    if held is not None:
        conditions["held"] = m.Held(held, 0.5)
    domain = m.Domain(cells, steps) if mask is None else m.Domain.from_mask(mask, steps)
    solution = m.solve(m.Problem(domain, "diffusion", fields, conditions), rtol=1e-10)
    expected = assembled(cells, steps, fields, sides, mask, held)
    assert solution.converged
    np.testing.assert_allclose(
        solution.field, expected, atol=1e-7 * np.nanmax(abs(expected)), rtol=0
    )
