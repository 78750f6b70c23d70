"""Sources and reactions per cell: each node has its part of what its cells have, so nothing is lost; beside sums over cells."""

import json

import numpy as np
import pytest
from by_cells import ByCells
from scipy.sparse import coo_array, diags
from scipy.sparse.linalg import spsolve

import mosaicdd as m

H = 0.25
TIGHT = m.SolveSettings(rtol=1e-12)
NATURAL = {"left": ("value", 1.0), "right": ("flux", 0.3), "top": ("exchange", 2.0, 0.5), "bottom": ("flux", 0.1)}  # fmt: skip
PAIR = {"left": "around", "right": "around", "top": ("exchange", 2.0, 0.5), "bottom": ("value", 0.2)}  # fmt: skip
VALUES = dict.fromkeys(("left", "right", "bottom", "top"), ("value", 1.0))
PLACES = {
    "values": ((32, 48), VALUES),
    "natural": ((24, 20), NATURAL),
    "around": ((24, 20), PAIR),
    "mask": ((24, 20), NATURAL),
    "box": ((8, 12, 10), {"left": ("value", 1.0), "right": ("flux", 0.3), "top": "around", "bottom": "around", "back": ("exchange", 1.0, 0.2), "front": ("flux", 0.1)}),
    "mask of voxels": ((8, 12, 10), NATURAL | {"back": ("exchange", 1.0, 0.2), "front": ("flux", 0.1)}),
}  # fmt: skip
KINDS = {"value": m.Dirichlet, "flux": m.Neumann, "exchange": m.Robin}
INSULATED = {"left": m.Dirichlet(1.0), "right": m.Neumann(0.0), "bottom": m.Neumann(0.0), "top": m.Neumann(0.0)}  # fmt: skip


def drawn(shape, seed):
    return np.random.default_rng((seed, *shape)).uniform(0.5, 2.0, shape)


def made(place):
    """Return a domain, its conditions, its cells, and what makes solutions there."""
    cells, sides = PLACES[place]
    inside = np.ones(cells, bool)
    if "mask" in place:
        inside[(slice(3, 6),) * len(cells)] = False
    domain = m.Domain.from_mask(inside, H, per_cell=True) if "mask" in place else m.Domain(cells, H)
    conditions = {n: m.Periodic() if side == "around" else KINDS[side[0]](*side[1:]) for n, side in sides.items()}  # fmt: skip
    conditions |= {"outline": m.Neumann(0.0)} if "mask" in place else {}
    return domain, conditions, inside, ByCells(inside, H, sides)


@pytest.mark.parametrize("place", PLACES)
def test_solutions_are_those_of_sums_over_cells_and_balances_have_all_that_is_made(place):
    domain, conditions, inside, by_cells = made(place)
    data = {name: drawn(inside.shape, seed) for seed, name in enumerate("acf")}
    held = {name: np.where(inside, values, np.nan) for name, values in data.items()}
    solution = m.solve(m.Problem(domain, "diffusion", held, conditions), settings=TIGHT)
    expected = by_cells.solution(
        lambda q, u, other, way: q["a"] * (u - other), lambda q, u: q["c"] * u, **data
    )
    np.testing.assert_allclose(solution.field, expected, atol=1e-12)
    balance, made_there = solution.balance(), data["f"][inside].sum() * H**inside.ndim
    assert balance.sources == pytest.approx(made_there, rel=1e-14)
    assert balance.relative < 1e-11


@pytest.mark.parametrize("place", ["values", "natural", "mask"])
def test_with_constant_coefficients_it_is_the_same(place):
    domain, conditions, inside, by_cells = made(place)
    f = drawn(inside.shape, 5)
    held = {"c": 0.7, "f": np.where(inside, f, np.nan)}
    solution = m.solve(m.Problem(domain, "screened-poisson", held, conditions), settings=TIGHT)
    expected = by_cells.solution(lambda q, u, v, way: u - v, lambda q, u: 0.7 * u, f)
    np.testing.assert_allclose(solution.field, expected, atol=1e-12)


def test_several_problems_have_sources_of_their_own():
    f = drawn((3, 32, 48), 1)
    several = m.solve(m.Problem((32, 48), "poisson", {"f": f}), settings=TIGHT)
    for own, field in zip(f, several.field, strict=True):
        alone = m.solve(m.Problem((32, 48), "poisson", {"f": own}), settings=TIGHT)
        np.testing.assert_allclose(field, alone.field, atol=1e-13)
    assert [b.sources for b in several.balance()] == pytest.approx([*f.sum(axis=(1, 2)) / 64**2])


def test_an_outline_that_cuts_cells_takes_their_parts():
    # Of the cells at x from 1 to 1.25 the outline, x = 1.1, leaves two fifths.
    domain = m.Domain.from_distance("x - 1.1", (16, 24), H)
    f = drawn((16, 24), 2)
    held = np.where(np.arange(24) < 5, f, np.nan)
    sides = INSULATED | {"outline": m.Neumann(0.0)}
    solution = m.solve(m.Problem(domain, "poisson", {"f": held}, sides), settings=TIGHT)
    amounts = H**2 * f[:, :5].sum(axis=0) @ [1, 1, 1, 1, 0.4]
    balance = solution.balance()
    assert balance.sources == pytest.approx(amounts, rel=1e-13)
    assert balance.flows["left"] == pytest.approx(amounts, rel=1e-10)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("pde", ["diffusion", "screened-poisson"])
def test_ranks_have_the_same_solution_and_balance(comm, pde, known_by_one):
    cells = (96, 128)
    data = {"c": 0.7} if pde != "diffusion" else {n: drawn(cells, k) for k, n in enumerate("ac")}
    problem = m.Problem(m.Domain(cells, 0.05), pde, data | {"f": drawn(cells, 5)}, INSULATED)
    solution = m.solve(problem, ranks=comm, settings=TIGHT)
    alone = known_by_one(m.solve, problem, settings=TIGHT)
    np.testing.assert_allclose(solution.gather(), alone.field, atol=1e-9)
    assert solution.balance().sources == pytest.approx(data_of(problem), rel=1e-13)


def data_of(problem):
    """Return all that a source per cell makes."""
    return float(problem.fields["f"].sum() * problem.domain.grid().spacing ** 2)


@pytest.mark.ranks(1, 2)
def test_files_have_the_cells(comm, mosaicdd, common_path):
    paths = [str(common_path / name) for name in ("f.npy", "c.npy", "out.h5")]
    f, c = drawn((64, 64), 1), drawn((64, 64), 2)
    if comm.rank == 0:
        np.save(paths[0], f)
        np.save(paths[1], c)
    comm.Barrier()
    fields = ["--field", f"f={paths[0]}", "--field", f"c={paths[1]}", "--field", "a=2"]
    sides = ["--boundary", "0", "--side", "right=neumann:0", "--rtol", "1e-11"]
    ended = mosaicdd("solve", "-o", paths[2], "--cells", "64x64", "--pde", "diffusion", *fields, *sides)  # fmt: skip
    assert ended.code == 0, ended.err
    compared = mosaicdd("compare", paths[2], "--reference", "direct", "--json")
    assert json.loads(compared.out)["max_error"] < 1e-9
    solution = m.read(paths[2])
    np.testing.assert_array_equal(solution.fields["f"], f)
    np.testing.assert_array_equal(solution.fields["c"], c)
    assert solution.balance().sources == pytest.approx(f.sum() / 64**2, rel=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_a_march_has_sources_reactions_and_storage_per_cell(masked):
    cells, steps, dt = (12, 16), 3, 0.1
    inside = np.ones(cells, bool)
    if masked:
        inside[3:6, 4:8] = False
    a, c, s = (drawn(cells, seed) for seed in range(3))
    f = drawn((steps + 1, *cells), 3)
    held = {n: np.where(inside, v, np.nan) for n, v in {"a": a, "c": c, "s": s, "f": f}.items()}
    domain = m.Domain.from_mask(inside, H, per_cell=True) if masked else m.Domain(cells, H)
    sides = INSULATED | ({"outline": m.Neumann(0.0)} if masked else {})
    series = m.march(
        m.Problem(domain, "heat", held, sides), 0.0, dt=dt, steps=steps, method="euler",
        settings=TIGHT, solver_share=0,
    )  # fmt: skip
    by_cells = ByCells(inside, H, {"left": ("value", 1.0)})
    known = ~np.isnan(by_cells._known)
    active = (by_cells.volumes > 0) & ~known
    matrix, stored = _matrix(by_cells, inside, a, c), by_cells.loads(s)
    left, u, total = (diags(stored / dt) + matrix).tocsr(), np.where(known, 1.0, 0.0), 0.0
    for number in range(steps):
        loads = by_cells.loads(f[number + 1])
        b, total = stored / dt * u + loads, total + dt * loads.sum()
        rest = (b - left @ np.where(active, 0.0, u))[active]
        u[active] = spsolve(left[active][:, active].tocsc(), rest)
    expected = np.where(active | known, u, np.nan)[by_cells.number]
    np.testing.assert_allclose(series.field, expected, atol=1e-12)
    assert series.balance().sources == pytest.approx(total, rel=1e-13)
    assert series.balance().relative < 1e-12


def _matrix(by_cells, inside, a, c):
    entries = [(by_cells.loads(c), *[np.arange(by_cells.volumes.size)] * 2)]
    for (y, x), at in by_cells.at.items():
        for other in ((1 - y, x), (y, 1 - x)):
            ends, k = (at.numpy(), by_cells.at[other].numpy()), a[inside] / 2
            entries += [(k, ends[0], ends[0]), (-k, *ends)]
    values, rows, columns = (np.concatenate(part) for part in zip(*entries, strict=True))
    return coo_array((values, (rows, columns)), shape=(by_cells.volumes.size,) * 2)


def test_a_plan_tells_other_cells(tmp_path):
    f, c = drawn((32, 32), 1), drawn((32, 32), 2)
    problem = m.Problem((32, 32), "diffusion", {"a": 2.0 + 0 * c, "c": c, "f": f})
    with m.Solver(problem, settings=TIGHT) as solver:
        first = solver().field
        twice = solver(problem.with_fields(f=2 * f)).field
        np.testing.assert_allclose(twice, 2 * first, atol=1e-12)
        with pytest.raises(ValueError, match="field c"):
            solver(problem.with_fields(c=c + np.eye(32)))


NAN = np.where(np.arange(64).reshape(8, 8) == 26, np.nan, 1.0)


@pytest.mark.parametrize(
    ("pde", "fields", "says"),
    [
        ("poisson", {"f": NAN}, r"field f has 1 of 64 values that are not finite, the first at cell \(3, 2\)"),
        ("diffusion", {"c": NAN - 2}, "field c has 1 of 64 values that are not finite"),
        ("diffusion", {"a": np.ones((8, 8)), "c": np.where(NAN == 1, 1.0, -0.1)}, r"c must be not negative everywhere.*-0.1 at cell \(3, 2\)"),
        ("advection-diffusion", {"bx": np.ones((8, 8))}, r"bx has the shape \(8, 8\).*and bx is given there, not per cell"),
        ("poisson", {"f": m.Wells([((0.05, 0.06), 1.0)], beside=np.ones((8, 8)))}, r"f has the shape \(8, 8\).*not per cell"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_its_cell(pde, fields, says):
    with pytest.raises(ValueError, match=says):
        m.solve(m.Problem((8, 8), pde, fields))
