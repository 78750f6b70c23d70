"""Periodic sides with a jump: a mean gradient that is imposed, against a sparse direct solution made here."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from central_differences import central_difference

import mosaicdd as m
from mosaicdd import Neumann, Periodic, Problem, solve
from mosaicdd.problems.shapes.shape import level_of_cells

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)
SHAPES = {"plane": (46, 72), "box": (10, 12, 20)}
NAMES = {
    2: (("bottom", "top"), ("left", "right")),
    3: (("back", "front"), ("bottom", "top"), ("left", "right")),
}


def cells_of(shape, seed=0):
    return np.exp(np.random.default_rng(seed).standard_normal(shape))


def sides_of(jumps):
    """Periodic sides with these jumps; of an axis without one insulated ones."""
    sides = {}
    for names, jump in zip(NAMES[len(jumps)], jumps, strict=True):
        sides |= dict.fromkeys(names, Neumann(0.0) if jump is None else Periodic(jump))
    return sides


def edges_of(a, axis):
    """Conductances of the edges along an axis between all nodes, both of a pair of sides: means of the cells around."""
    k = a
    for other in range(a.ndim):
        if other != axis:
            pad = [(int(other == each),) * 2 for each in range(a.ndim)]
            k = np.pad(k, pad)
            low, high = (np.take(k, range(s, k.shape[other] - 1 + s), other) for s in (0, 1))
            k = (low + high) / 2
    return k


def direct(a, jumps, f=None, h=1 / 64):
    """Solve by scipy: nodes of the second of two periodic sides are those of the first, larger by the jump."""
    nodes = tuple(n + 1 for n in a.shape)
    place = np.meshgrid(*(np.arange(n) for n in nodes), indexing="ij")
    lift, own = np.zeros(nodes), [*place]
    for axis, jump in enumerate(jumps):
        if jump is not None:
            last = place[axis] == nodes[axis] - 1
            own[axis] = np.where(last, 0, place[axis])
            lift += jump * last
    number = np.ravel_multi_index(own, nodes)
    ids, number = np.unique(number, return_inverse=True)
    number, count = number.reshape(nodes), len(ids)
    b, entries = np.zeros(count), []
    for axis in range(a.ndim):
        k = edges_of(a, axis).ravel()
        low, high = (np.take(number, range(s, nodes[axis] - 1 + s), axis).ravel() for s in (0, 1))
        rise = np.diff(lift, axis=axis).ravel()
        for i, j, v in ((low, low, k), (high, high, k), (low, high, -k), (high, low, -k)):
            entries.append((i, j, v))
        np.add.at(b, low, k * rise)
        np.add.at(b, high, -k * rise)
    volumes = np.ones(())
    for n in nodes:
        weights = np.ones(n)
        weights[[0, -1]] = 0.5
        volumes = np.multiply.outer(volumes, weights)
    if f is not None:
        np.add.at(b, number.ravel(), (h**2 * f * volumes).ravel())
    rows, columns, values = map(np.concatenate, zip(*entries, strict=True))
    matrix = scipy.sparse.coo_array((values, (rows, columns)), shape=(count,) * 2).tocsr()
    w = np.zeros(count)
    w[1:] = scipy.sparse.linalg.spsolve(matrix[1:, 1:].tocsc(), b[1:])
    u = w[number] + lift
    return u - (u * volumes).sum() / volumes.sum()


CASES = {
    "x": ("plane", (0.0, 1.0)),
    "both": ("plane", (0.5, -2.0)),
    "insulated": ("plane", (None, 1.0)),
    "z": ("box", (3.0, 0.0, 0.0)),
    "channel": ("box", (None, 0.0, 1.0)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_jump_is_that_of_a_direct_solution(case, comm):
    kind, jumps = CASES[case]
    a = cells_of(SHAPES[kind])
    problem = Problem(a.shape, "diffusion", {"a": a}, sides_of(jumps))
    solution = solve(problem, rtol=1e-12, ranks=comm)
    truth = direct(a, jumps)
    assert solution.status == "converged_rtol"
    np.testing.assert_allclose(solution.gather(), truth, rtol=0, atol=1e-9)
    assert solution.report["discrete_residual"] <= 1e-12
    # The reference is made in another way, of the same equations.
    assert solution.compare("direct").max_error < 1e-9


def test_sources_fluxes_and_the_balance_are_right_across_the_seam(comm):
    a, h = cells_of(SHAPES["plane"]), 1 / 64
    nodes = tuple(n + 1 for n in a.shape)
    f = np.random.default_rng(1).standard_normal(nodes)
    f[:, -1], f[-1] = f[:, 0], f[0]
    f -= f[:-1, :-1].mean()
    problem = Problem(a.shape, "diffusion", {"a": a, "f": f}, sides_of((1.0, 2.0)))
    solution = solve(problem, rtol=1e-12, ranks=comm)
    truth = direct(a, (1.0, 2.0), f)
    u = solution.gather()
    np.testing.assert_allclose(u, truth, rtol=0, atol=1e-9)
    np.testing.assert_allclose(u[:, -1] - u[:, 0], 2.0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(u[-1] - u[0], 1.0, rtol=0, atol=1e-12)
    assert abs(solution.mean()) < 1e-12
    assert abs(solution.balance().left_over) < 1e-8
    energy = sum(0.5 * (edges_of(a, k) * np.diff(truth, axis=k) ** 2).sum() for k in (0, 1))
    assert solution.energy() == pytest.approx(energy, rel=1e-9)
    # Central differences go on across the seam.
    slopes = [solution.gradient()[k] for k in (0, 1)]
    assert all(np.isfinite(s).all() for s in slopes)
    if comm.size == 1:
        across = (u[:, 1] + 2.0 - u[:, -2]) / (2 * h)
        np.testing.assert_allclose(slopes[1][:, 0], across, rtol=0, atol=1e-8)
        np.testing.assert_allclose(slopes[1][:, -1], across, rtol=0, atol=1e-8)
    k = edges_of(a, 1)
    out = -(k[:, 0] * np.diff(truth[:, :2], axis=1)[:, 0]).sum()
    assert solution.flow("right") == pytest.approx(-solution.flow("left"), abs=1e-8)
    inside = (h**2 * f[:, 0] * np.r_[0.5, np.ones(a.shape[0] - 1), 0.5] / 2).sum()
    assert solution.flow("left") == pytest.approx(-(out - inside), rel=1e-7)


def test_flows_through_a_cell_are_its_effective_tensor_times_the_slope(comm):
    """Voxels around nodes make the same conductances as the values there."""
    voxels = cells_of((46, 72))
    effective = m.effective(voxels, spacing=1 / 64, periodic=True, rtol=1e-9)
    a = np.pad(voxels, (0, 1), mode="wrap")
    lengths = np.array(voxels.shape) / 64
    for axis in (0, 1):
        jumps = [0.0, 0.0]
        jumps[axis] = 3.0
        problem = Problem(voxels.shape, "diffusion", {"a": a}, sides_of(jumps))
        solution = solve(problem, rtol=1e-12, ranks=comm)
        flows = np.array([solution.flow(side) for side in ("top", "right")]) / lengths[::-1]
        expected = -effective.tensor[:, axis] * 3.0 / lengths[axis]
        np.testing.assert_allclose(flows, expected, rtol=0, atol=1e-6 * abs(expected).max())


def test_tensors_and_nodes_and_constants_take_jumps(comm):
    shape = (48, 72)
    tensor = {"axx": cells_of(shape, 3) + 1, "ayy": 2.0, "axy": 0.4}
    for equation, fields in (
        ("anisotropic-diffusion", {"axx": 3.0, "ayy": 1.0, "axy": 0.0}),
        ("diffusion", {"a": "1.5 + sin(2*pi*x/1.125)"}),
        ("laplace", {}),
    ):
        problem = Problem(shape, equation, fields, sides_of((0.0, 1.0)))
        solution = solve(problem, rtol=1e-11, ranks=comm)
        assert solution.converged
        u = solution.gather()
        np.testing.assert_allclose(u[:, -1] - u[:, 0], 1.0, rtol=0, atol=1e-10)
        assert solution.compare("direct").max_error < 1e-8
    problem = Problem(shape, "diffusion", tensor, sides_of((0.0, 1.0)))
    solution = solve(problem, rtol=1e-11, ranks=comm)
    assert solution.converged
    assert solution.compare("direct").max_error < 1e-8


def test_laplace_with_a_jump_is_the_slope_itself(comm):
    solution = solve(Problem((46, 72), "laplace", sides=sides_of((2.0, 1.0))), ranks=comm)
    y, x = np.meshgrid(np.arange(47) / 46 - 0.5, np.arange(73) / 72 - 0.5, indexing="ij")
    np.testing.assert_allclose(solution.gather(), 2 * y + x, rtol=0, atol=1e-9)


@pytest.mark.parametrize("equation", ["diffusion", "bilinear-diffusion"])
def test_a_medium_that_is_moved_around_has_the_same_solution_moved(equation, comm):
    """The seam is no place of its own, also of tensors: beyond half of a period a medium is the same."""
    shape, by = (48, 72), 31
    tensor = {"axx": cells_of(shape, 3) + 1, "ayy": cells_of(shape, 4) + 1, "axy": 0.4}
    moved = {n: np.roll(v, by, 1) if isinstance(v, np.ndarray) else v for n, v in tensor.items()}
    x = np.arange(73) / 72
    fields = []
    for each in (tensor, moved):
        problem = Problem(shape, equation, each, sides_of((-1.0, 2.0)))
        fields.append(solve(problem, rtol=1e-12, ranks=comm).gather() - 2.0 * x)
    periodic = np.roll(fields[0][:, :-1], by, 1)
    assert np.ptp(periodic - periodic.mean(axis=1, keepdims=True)) > 0.01
    difference = fields[1][:, :-1] - periodic
    np.testing.assert_allclose(difference, difference[0, 0], rtol=0, atol=1e-8)


def round_holes(shape):
    y, x = np.meshgrid(*((np.arange(n) + 0.5) / n for n in shape), indexing="ij")
    return (
        np.minimum(np.hypot(y - 0.5, x - 0.5), np.hypot(y - 0.3, np.minimum(x, 1 - x)) + 0.1) > 0.2
    )


def test_beside_holes_the_slope_is_imposed_too(comm):
    """Of a mask of cells; what is around a hole adds up, and the mean over the domain is zero."""
    shape = (46, 72)
    a = np.where(round_holes(shape), 1.0, 1e-9)  # which is as good as a hole
    sides = sides_of((0.0, 1.0))
    known = solve(Problem(shape, "diffusion", {"a": a}, sides), rtol=1e-12, ranks=comm)
    domain = m.Domain(shape, shape=level_of_cells(round_holes(shape)))
    holes = sides | {"outline": Neumann(0.0)}
    solution = solve(Problem(domain, "diffusion", {"a": 1.0}, holes), rtol=1e-12, ranks=comm)
    assert solution.converged
    u, truth = solution.gather(), known.gather()
    rise = u[:, -1] - u[:, 0]
    assert 20 < np.isfinite(rise).sum() < len(rise)
    np.testing.assert_allclose(rise[np.isfinite(rise)], 1.0, rtol=0, atol=1e-9)
    difference = (u - truth)[np.isfinite(u)]
    assert np.ptp(difference) < 1e-5
    assert abs(solution.mean()) < 1e-9
    assert solution.flow("right") == pytest.approx(known.flow("right"), rel=1e-6)
    assert solution.compare("direct").max_error < 1e-8


def test_what_has_no_jump_is_refused_in_one_line(comm):
    shape = (46, 72)
    sides = sides_of((None, 1.0))
    refused = {
        "the side left jumps by 1, the side right by 0": lambda: Problem(
            shape, "laplace", sides=sides | {"right": Periodic()}
        ),
        "go with sides and outlines where a flux is given": lambda: solve(
            Problem(shape, "laplace", sides=sides | {"top": m.Dirichlet(1.0)}), ranks=comm
        ),
        "and without c": lambda: solve(
            Problem(shape, "diffusion", {"a": 1.0, "c": 1.0}, sides), ranks=comm
        ),
        "are for steady linear equations, heat is none": lambda: Problem(
            shape, "heat", sides=sides
        ),
        "are for steady linear equations, poisson-boltzmann": lambda: Problem(
            shape, "poisson-boltzmann", {"c": 1.0}, sides
        ),
        "must be a number, got inf": lambda: Periodic(float("inf")),
    }
    for message, ask in refused.items():
        with pytest.raises((ValueError, TypeError), match=message) as raised:
            ask()
        assert len(str(raised.value).splitlines()) == 1


def test_another_jump_is_other_data_of_the_same_plan(comm):
    a = cells_of((46, 72))
    with m.Solver(
        Problem(a.shape, "diffusion", {"a": a}, sides_of((0.0, 1.0))), rtol=1e-12, ranks=comm
    ) as solver:
        first = solver()
        other = solver(Problem(a.shape, "diffusion", {"a": a}, sides_of((0.0, 3.0))), start=first)
        np.testing.assert_allclose(other.gather(), 3 * first.gather(), rtol=0, atol=1e-9)


PIN = {"pin": m.Held((0.3, 0.4), 2.0)}


def test_a_value_that_is_held_inside_holds_the_level(comm):
    a = cells_of((46, 72))
    sides = sides_of((0.0, 1.0))
    solution = solve(Problem(a.shape, "diffusion", {"a": a}, sides | PIN), rtol=1e-12, ranks=comm)
    u, truth = solution.gather(), direct(a, (0.0, 1.0))
    assert np.isclose(u, 2.0, atol=1e-12).any()
    np.testing.assert_allclose(np.ptp(u - truth), 0.0, atol=1e-9)
    assert solution.compare("direct").max_error < 1e-9


@pytest.mark.ranks(1, 2)
def test_gradients_by_the_medium_are_differences(comm):
    torch = pytest.importorskip("torch")
    shape = (46, 72)
    a = cells_of(shape)
    problem = Problem(shape, "diffusion", {"a": a}, sides_of((0.0, 1.0)) | PIN)
    weights = np.random.default_rng(5).standard_normal((47, 73))
    weights[:, -1] = weights[-1] = 0.0
    weights[:-1, :-1] -= weights[:-1, :-1].mean()
    call = m.differentiable(problem, "a", rtol=1e-12, ranks=comm)
    at = torch.from_numpy(a).requires_grad_()
    (torch.from_numpy(weights) * call(a=at)).sum().backward()
    cell, step = (20, 71), 1e-3  # beside the seam

    def terms(s):
        changed = a.copy()
        changed[cell] += s
        problem = Problem(shape, "diffusion", {"a": changed}, sides_of((0.0, 1.0)) | PIN)
        return weights * solve(problem, rtol=1e-12, ranks=comm).gather()

    assert float(at.grad[cell]) == central_difference(terms, step)
