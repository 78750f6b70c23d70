"""Sources and reactions per cell: each node has its part of what its cells have, so nothing is lost; beside sums over cells."""

import json
from dataclasses import replace

import numpy as np
import pytest
from drawn_problems import drawn
from own_equations import OwnEquations, OwnSolution

import mosaicdd as m

H = 0.25
TIGHT = m.SolveSettings(rtol=1e-12)
INSULATED = {"left": m.Dirichlet(1.0), "right": m.Neumann(0.0), "bottom": m.Neumann(0.0), "top": m.Neumann(0.0)}  # fmt: skip


def drawn_cells(shape, seed):
    return np.random.default_rng((seed, *shape)).uniform(0.5, 2.0, shape)


def test_an_outline_that_cuts_cells_takes_their_parts():
    # Of the cells at x from 1 to 1.25 the outline, x = 1.1, leaves two fifths.
    domain = m.Domain.from_distance("x - 1.1", (16, 24), H)
    f = drawn_cells((16, 24), 2)
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
    data = (
        {"c": 0.7} if pde != "diffusion" else {n: drawn_cells(cells, k) for k, n in enumerate("ac")}
    )
    problem = m.Problem(m.Domain(cells, 0.05), pde, data | {"f": drawn_cells(cells, 5)}, INSULATED)
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
    f, c = drawn_cells((64, 64), 1), drawn_cells((64, 64), 2)
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


@pytest.mark.parametrize("kind", ["rectangle", "cells", "voxels"])
def test_a_march_has_sources_reactions_and_storage_per_cell(kind):
    p, dt, steps = drawn(3005, kind=kind), 0.1, 2
    a, c, s = (drawn_cells(p.cells, seed) for seed in range(3))
    f, u = drawn_cells((steps + 1, *p.cells), 3), np.full(p.nodes, 0.5)
    p.data = {n: way for n, way in p.data.items() if n not in "acf"}
    p.fields = {"a": a, "c": c, "f": f, "s": s}
    series = m.march(
        replace(p, pde="heat").problem, 0.5, dt=dt, steps=steps, method="euler", settings=TIGHT,
        solver_share=0,
    )  # fmt: skip
    made = 0.0
    for number in range(steps):
        step = replace(p, fields={"a": a, "c": c + s / dt, "f": f[number + 1]})
        stored = OwnEquations(replace(p, fields={"c": s})).consumed
        own = OwnSolution(step, at_nodes=stored * u / dt)
        made += dt * own.sources
        u = np.nan_to_num(own.u)
    np.testing.assert_allclose(series.field, own.u, rtol=0, atol=1e-9 * np.nanmax(abs(own.u)))
    assert series.balance().sources == pytest.approx(made, rel=1e-10)
    assert series.balance().relative < 1e-10


def test_a_plan_tells_other_cells(tmp_path):
    f, c = drawn_cells((32, 32), 1), drawn_cells((32, 32), 2)
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
