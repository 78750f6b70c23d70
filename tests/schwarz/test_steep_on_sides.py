"""Equations in the gradient of the solution where not all values are given: an assembly of its own, Newton's method, ranks."""

import itertools

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch

import mosaicdd as m
from mosaicdd.solvers.references import solve_directly

H = 0.1
TIGHT = m.SolveSettings(rtol=1e-12)
P, EPS = 4.0, 0.3
SIDES = {
    "left": m.Dirichlet("4*sin(5*y) + y"),
    "right": m.Neumann("0.3 - y/6"),
    "bottom": m.Robin(2.0, "x"),
    "top": m.Neumann(0.0),
}
IN_SPACE = SIDES | {"left": m.Dirichlet("4*sin(5*y*z) + z"), "back": m.Robin(1.0, "y"), "front": m.Neumann("x/8")}  # fmt: skip
PAIR = {
    "bottom": m.Periodic(),
    "top": m.Periodic(),
    "left": m.Dirichlet("4*sin(5*z) + z"),
    "back": m.Robin(1.0, "x"),
    "right": m.Neumann("0.3 - z/2"),
}


def energies(name, axes):
    """Return the energy of a cell by its corners' values, and those of a there."""
    corners = list(itertools.product((0, 1), repeat=axes))
    number = {corner: k for k, corner in enumerate(corners)}

    def energy(u, a):
        total = 0.0
        for corner in corners:
            squared = 0.0
            for axis in range(axes):
                ends = [number[(*corner[:axis], e, *corner[axis + 1 :])] for e in (0, 1)]
                squared = squared + ((u[ends[1]] - u[ends[0]]) / H) ** 2
            if name == "minimal-surface":
                total = total + (1 + squared) ** 0.5
            else:
                total = total + a[number[corner]] * (EPS**2 + squared) ** (P / 2) / P
        return H**axes / 2**axes * total

    return energy


def glued(nodes, pairs):
    """Return the number of the unknown of each node, where the ends of some axes are one."""
    places = np.indices(nodes)
    for axis in pairs:
        places[axis] %= nodes[axis] - 1
    return np.ravel_multi_index(places, nodes)


def loads(numbers, cells, sides, f, inside):
    """Return right-hand sides, what exchanges, and which nodes have which values."""
    axes, nodes = len(cells), tuple(n + 1 for n in cells)
    places = [n * H for n in np.indices(nodes)]
    known = dict(zip("zyx"[3 - axes :], places, strict=True)) | {"sin": np.sin}
    share, b, d = np.zeros((3, *nodes))
    for corner in itertools.product((0, 1), repeat=axes):
        place = tuple(slice(c, n + c) for c, n in zip(corner, cells, strict=True))
        share[place] += (H / 2) ** axes * inside
    b += share * f
    given = np.full(nodes, np.nan)
    names = {"left": (-1, 0), "right": (-1, -1), "bottom": (-2, 0), "top": (-2, -1), "back": (-3, 0), "front": (-3, -1)}  # fmt: skip
    for name, side in sides.items():
        axis, end = names.get(name, (0, 0))
        place = [slice(None)] * axes
        place[axis] = end
        place = tuple(place)
        if isinstance(side, m.Periodic) or name not in names:  # an outline that nothing passes
            continue
        values = side.values
        here = (eval(values, known) if isinstance(values, str) else values + 0 * places[0])[place]
        if isinstance(side, m.Dirichlet):
            given[place] = here
            continue
        area = share[place] / (H / 2)
        b[place] += area * here
        d[place] += area * getattr(side, "alpha", 0.0)
    size = numbers.max() + 1
    total = [np.bincount(numbers.ravel(), v.ravel(), size) for v in (b, d)]
    held = np.full(size, np.nan)
    held[numbers[~np.isnan(given)]] = given[~np.isnan(given)]
    return *total, held


def minimised(name, cells, sides, begin, f, a, pairs=(), inside=None):
    """Return the field of least energy, by Newton's method with a factorisation of what cells add up to.

    ``begin``: where it begins; the energy is convex, so it ends at the one least, wherever that is.
    """
    nodes = tuple(n + 1 for n in cells)
    axes, numbers = len(cells), glued(nodes, pairs)
    corners = list(itertools.product((0, 1), repeat=axes))
    of_cells = np.stack(
        [numbers[tuple(slice(c, n + c) for c, n in zip(k, cells, strict=True))] for k in corners],
        axis=-1,
    )
    inside = np.ones(cells, bool) if inside is None else inside
    of_cells = of_cells[inside]
    b, d, held = loads(numbers, cells, sides, f, inside)
    size, at = len(b), np.broadcast_to(a, nodes)
    a = torch.from_numpy(np.stack([at[tuple(slice(c, n + c) for c, n in zip(k, cells, strict=True))] for k in corners], -1)[inside].copy())  # fmt: skip
    used = np.zeros(size, bool)
    used[of_cells.ravel()] = True
    free = np.flatnonzero(np.isnan(held) & used)
    energy = energies(name, axes)
    u = np.zeros(size)
    u[numbers] = np.nan_to_num(begin)
    u = np.where(np.isnan(held), u, held)
    each = torch.func.vmap(energy)
    gradients = torch.func.vmap(torch.func.grad(energy))
    hessians = torch.func.vmap(torch.func.hessian(energy))

    def value(u):
        corner = torch.from_numpy(u[of_cells])
        return float(each(corner, a).sum()) + float((d * u**2 / 2 - b * u)[used].sum())

    for _ in range(60):
        corner = torch.from_numpy(u[of_cells])
        r = np.bincount(of_cells.ravel(), gradients(corner, a).numpy().ravel(), size) + d * u - b
        entries = hessians(corner, a).numpy()
        rows = np.repeat(of_cells, len(corners), axis=1).ravel()
        columns = np.tile(of_cells, (1, len(corners))).ravel()
        k = scipy.sparse.coo_array((entries.ravel(), (rows, columns)), (size, size)).tocsc()
        k += scipy.sparse.diags_array(d)
        change = np.zeros(size)
        change[free] = scipy.sparse.linalg.spsolve(k.tocsc()[free][:, free], -r[free])
        length = 1.0
        while value(u + length * change) > value(u) + 1e-12 * abs(value(u)):
            length /= 2
        u = u + length * change
        if length == 1.0 and abs(change).max() < 1e-13 * np.ptp(u[free]):
            break
    else:
        raise AssertionError("Newton's method of the test does not converge")
    field = u[numbers]
    field[~used[numbers]] = np.nan
    return field


def fields(name, nodes):
    """Return fields of an equation: a source, and a coefficient at nodes where there is one."""
    rng = np.random.default_rng(0)
    f = rng.uniform(-2, 2, nodes)
    if name == "minimal-surface":  # which takes no larger fluxes
        return {"f": 0.2 * f}, 1.0
    a = rng.uniform(0.5, 2.0, nodes)
    return {"f": f, "a": a, "p": P, "eps": EPS}, a


VOXELS = np.ones((8, 17, 25), bool)
VOXELS[2:5, 3:6, 4:9] = VOXELS[6:, :4, 7:] = False  # a hole, and a step
CASES = {
    "a box": ((8, 17, 25), IN_SPACE, (), None),
    "a pair in a box": ((8, 18, 17), IN_SPACE | PAIR, (1,), None),
    "voxels": ((8, 17, 25), IN_SPACE | {"outline": m.Neumann(0.0)}, (), VOXELS),
    "a rectangle": ((33, 35), SIDES, (), None),
}


@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("minimal-surface", "a box"),
        pytest.param("p-laplace", "a box", marks=pytest.mark.nightly),
        ("p-laplace", "a pair in a box"),
        ("minimal-surface", "voxels"),
        ("minimal-surface", "a rectangle"),
        pytest.param("p-laplace", "a rectangle", marks=pytest.mark.nightly),
    ],
)
def test_any_number_of_ranks_finds_the_field_of_least_energy(comm, by_one, name, case):
    cells, sides, pairs, inside = CASES[case]
    given, a = fields(name, tuple(n + 1 for n in cells))
    if pairs:  # both of a pair have the values of the first
        for values in given.values():
            if np.ndim(values):
                values[:, -1] = values[:, 0]
    domain = m.Domain(cells, H) if inside is None else m.Domain.from_mask(inside, H)
    problem = m.Problem(domain, name, given, sides)
    solution = m.solve(problem, ranks=comm, settings=TIGHT)
    assert solution.converged, solution.report
    field = solution.gather()
    data = given["f"], a, pairs, inside
    reference = by_one(minimised, name, cells, sides, field, *data)
    size = np.nanmax(reference) - np.nanmin(reference)
    np.testing.assert_array_equal(np.isnan(field), np.isnan(reference))
    # What the tolerance leaves, times the condition.
    assert np.nanmax(abs(field - reference)) < 1e-9 * size


def test_the_reference_solver_finds_it_too_and_the_estimate_is_of_the_error():
    cells, sides, *_ = CASES["a rectangle"]
    given, _ = fields("p-laplace", tuple(n + 1 for n in cells))
    problem = m.Problem(m.Domain(cells, H), "p-laplace", given, sides)
    direct, tight, loose = (
        solve_directly(problem),
        m.solve(problem, settings=TIGHT),
        m.solve(problem, rtol=1e-3),
    )
    assert abs(direct - tight.field).max() < 1e-9 * np.ptp(direct)
    error = np.sqrt(np.square(loose.field - direct).mean())
    assert error < loose.error_estimate < 100 * error


def test_steep_data_do_not_lead_far_beyond_the_surface():
    # A residual that flows bound falls on the way to any height.
    sides = SIDES | {"left": m.Dirichlet("9*sin(5*y)")}
    given, _ = fields("minimal-surface", (34, 36))
    problem = m.Problem(m.Domain((33, 35), H), "minimal-surface", given, sides)
    solution = m.solve(problem)
    assert solution.status == "converged_rtol"
    assert abs(solution.field).max() < 20


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize(
    ("cells", "p"),
    [((33, 50), 1.5), ((33, 50), 2.0), ((33, 50), 5.0), ((17, 17, 34), 2.0)],  # for 2 corners count nothing
)  # fmt: skip
def test_what_sides_drive_alone_is_an_answer(comm, cells, p):
    """Between a flux and an exchange the slope is that of the formula; residuals are measured by both."""
    slope, eps, level = 0.7, 0.1, 3.0
    flux = 1.4 * (eps**2 + slope**2) ** ((p - 2) / 2) * slope
    names = ["left", "right", "bottom", "top", "back", "front"][: 2 * len(cells)]
    sides = dict.fromkeys(names, m.Neumann(0.0))
    sides |= {"right": m.Neumann(flux), "left": m.Robin(2.0, 2.0 * level - flux)}
    problem = m.Problem(m.Domain(cells, H), "p-laplace", {"a": 1.4, "p": p, "eps": eps}, sides)
    solution = m.solve(problem, ranks=comm, settings=TIGHT)
    assert solution.status == "converged_rtol"
    assert solution.iterations <= 6
    expected = level + slope * H * np.arange(cells[-1] + 1)
    np.testing.assert_allclose(
        solution.gather(), np.broadcast_to(expected, [n + 1 for n in cells]), rtol=1e-10
    )


@pytest.mark.ranks(1, 2)
def test_what_has_no_energy_of_whole_cells_is_refused_in_one_line(comm):
    disk = m.Domain.from_distance(lambda x, y: np.hypot(x - 1, y - 1) - 0.7, (20, 20), H)
    with pytest.raises(
        m.Unsupported, match="on rectangles, boxes and masks of voxels; other"
    ) as told:
        m.Problem(disk, "minimal-surface")
    assert "\n" not in str(told.value)

    def residual(u, h):  # of an energy, which knows nothing of cells
        return sum((u.centre - corner) for corner in u.corners) / h**2

    own = m.NonlinearEquation("own", "flows across", residual=residual, self_adjoint=True)
    with pytest.raises(m.Unsupported, match="or that are the derivative of an energy of cells"):
        m.Problem(m.Domain((20, 20), H), own, {}, SIDES)
