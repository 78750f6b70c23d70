"""A plan never serves other data than it was made for: a problem is a value."""

import copy
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import mosaicdd as m
from mosaicdd.grid.grid import Grid
from mosaicdd.solvers.references import solve_directly

CELLS = (64, 96)
NODES = (65, 97)
EXACT = m.SolveSettings(rtol=1e-11)
RANKS = pytest.mark.ranks(1, 2, 3)
AGAIN = "make a new one"


def smooth(seed):
    """Return positive values at the nodes."""
    rows, columns = (np.arange(n) / 16 for n in NODES)
    return 2.0 + np.sin((seed + 1) * rows)[:, None] * np.cos(columns)


def in_memory(values, folder):
    return values


def tensor(values, folder):
    return torch.from_numpy(values)


def memory_map(values, folder):
    np.save(folder / "a.npy", values)
    return np.load(folder / "a.npy", mmap_mode="r+")


def dataset(values, folder):
    h5py = pytest.importorskip("h5py")
    file = h5py.File(folder / "a.h5", "w")
    return file.create_dataset("a", data=values)


@pytest.mark.parametrize("kind", [in_memory, tensor, memory_map, dataset])
@pytest.mark.parametrize("again", [lambda p, a: p, lambda p, a: p.with_fields(a=a)])
def test_a_coefficient_that_was_changed_in_place_is_refused(kind, again, tmp_path):
    a = kind(smooth(0), tmp_path)
    problem = m.Problem(CELLS, "diffusion", {"a": a, "f": 1.0})
    with m.Solver(problem) as solver:
        before = solver().field
        a[20:30, 30:40] = 1e-3
        with pytest.raises(ValueError, match=f"field a changed since.*{AGAIN}"):
            solver(again(problem, a))
        with pytest.raises(ValueError, match=f"field a changed since.*{AGAIN}"):
            solver()
        a[...] = smooth(0) if kind is not tensor else torch.from_numpy(smooth(0))
        np.testing.assert_array_equal(solver(again(problem, a)).field, before)


@RANKS
def test_all_ranks_refuse_what_changed_on_the_nodes_of_one(comm):
    a = smooth(0)
    problem = m.Problem(CELLS, "diffusion", {"a": a, "f": 1.0})
    with m.Solver(problem, ranks=comm) as solver:
        solver()
        a[1, 1] = 5.0
        with pytest.raises(ValueError, match=f"field a changed since.*{AGAIN}"):
            solver(problem.with_fields(a=a))


def coefficient_of(equation, name, **others):
    return lambda values: m.Problem((64, 64), equation, {"f": 1.0, name: values, **others})


@RANKS
@pytest.mark.parametrize(
    "made",
    [
        coefficient_of("diffusion", "a"),
        coefficient_of("diffusion", "c", a="1 + x"),
        coefficient_of("advection-diffusion", "bx"),
        coefficient_of("p-laplace", "a", eps=0.1),
        coefficient_of("reaction-diffusion", "c", r="u**3"),
        coefficient_of("quasilinear-diffusion", "a", k="1 + u**2"),
        coefficient_of("poisson-boltzmann", "c"),
    ],
)
def test_what_was_planned_for_is_solved_though_its_array_has_changed(made, comm):
    values = 1 + np.random.default_rng(0).random((65, 65))
    with m.Solver(made(values), ranks=comm) as solver:
        before = solver()
        kept, values[...] = values.copy(), 2 * values
        again = solver(made(kept))
        assert again.status == before.status == "converged_rtol"
        np.testing.assert_array_equal(again.local, before.local)


class Moving:
    """A function whose variable may change."""

    scale = 1.0

    def __call__(self, x, y=None):
        return 1.0 + self.scale * x**2


@pytest.mark.parametrize(
    ("equation", "name"), [("diffusion", "a"), ("quasilinear-diffusion", "k"), ("diffusion", "c")]
)
def test_a_function_that_returns_other_values_is_refused(equation, name):
    function = Moving()
    problem = m.Problem(CELLS, equation, {name: function, "f": 1.0})
    with m.Solver(problem, settings=EXACT) as solver:
        before = solver().field
        function.scale = 0.5
        for given in (None, problem, problem.with_fields(f=2.0)):
            with pytest.raises(ValueError, match=rf"changed since.*{AGAIN}"):
                solver(given)
        function.scale = 1.0
        np.testing.assert_array_equal(solver().field, before)


def test_a_coefficient_of_equal_values_in_another_array_has_the_same_plan():
    problem = m.Problem(CELLS, "diffusion", {"a": smooth(0), "f": 1.0})
    with m.Solver(problem) as solver:
        before = solver().field
        np.testing.assert_array_equal(solver(problem.with_fields(a=smooth(0))).field, before)
        with pytest.raises(ValueError, match=f"another field a: {AGAIN}"):
            solver(problem.with_fields(a=smooth(1)))


def test_a_source_that_was_changed_in_place_is_handed_over_anew():
    f = smooth(0)
    problem = m.Problem(CELLS, "poisson", {"f": f})
    with m.Solver(problem, "exact", settings=EXACT) as solver:
        f *= 3.0  # since the plan
        with pytest.raises(ValueError, match=r"field f of the problem changed.*with_fields"):
            solver()
        solution = solver(problem.with_fields(f=f))
        truth = solve_directly(solution.problem, Grid(CELLS, 1 / 64))
        np.testing.assert_allclose(solution.field, truth, rtol=0, atol=1e-9)
        f *= 2.0
        with pytest.raises(ValueError, match=r"field f of the problem changed.*with_fields"):
            solver(solution.problem)


@pytest.mark.parametrize("equation", ["laplace", "diffusion", "quasilinear-diffusion"])
@pytest.mark.parametrize("kind", [m.Dirichlet, m.Neumann, lambda v: m.Robin(2.0, v)])
def test_values_on_a_side_that_changed_in_place_are_handed_over_anew(equation, kind):
    values = np.linspace(0.0, 0.1, 65)
    sides = {"left": kind(values), "right": m.Dirichlet(0.0)}
    problem = m.Problem(CELLS, equation, sides=sides)
    with m.Solver(problem) as solver:
        values *= 2.0
        with pytest.raises(ValueError, match=r"side left of the problem changed"):
            solver()
        twice = solver(problem.with_sides(sides)).field
    np.testing.assert_array_equal(twice, m.solve(problem).field)


def masked(mask):
    return m.Domain.from_mask(mask, 1 / 16)


def distance(mask):
    return m.Domain.from_distance(np.where(mask, -0.03, 0.02), CELLS, 1 / 16)


@pytest.mark.parametrize("domain", [masked, distance])
def test_equal_masks_are_equal_domains(domain):
    mask = np.ones(NODES, bool)
    mask[:20, :30] = False
    other = mask.copy()
    other[40:, 60:] = False
    assert domain(mask) == domain(mask.copy()) != domain(other)
    problem = m.Problem(domain(mask), "poisson", {"f": 1.0})
    with m.Solver(problem) as solver:
        before = solver().field
        same = solver(m.Problem(domain(mask.copy()), "poisson", {"f": 1.0})).field
        np.testing.assert_array_equal(same, before)
        with pytest.raises(ValueError, match=f"another shape of the domain: {AGAIN}"):
            solver(m.Problem(domain(other), "poisson", {"f": 1.0}))


def test_a_distance_that_was_changed_in_place_is_refused():
    level = np.full(NODES, -1.0)
    level[:20, :30] = 0.5
    level[30, 40] = -1e-9  # as near to the outline as a level counts as zero: it stays the caller's
    problem = m.Problem(m.Domain.from_distance(level, CELLS, 1 / 16), "poisson", {"f": 1.0})
    with m.Solver(problem) as solver:
        solver()
        assert level[30, 40] == -1e-9
        level[40:, 60:] = 0.5
        with pytest.raises(ValueError, match=f"shape of the domain changed since.*{AGAIN}"):
            solver()


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_a_distance_is_asked_for_once_and_compared_and_anew_in_the_next_solve(comm):
    hole, asked = {"radius": 0.5, "grows": 0.0}, []

    def level(x, y):
        asked.append(x.size)
        hole["radius"] += hole["grows"]
        return hole["radius"] - np.hypot(x - 3.0, y - 2.0)

    def solved(distance):
        domain = m.Domain.from_distance(distance, CELLS, 1 / 16)
        return m.solve(m.Problem(domain, "poisson", {"f": 1.0}), ranks=comm)

    solved(level)
    assert comm.size > 1 or sum(asked) < 2.5 * np.prod(NODES)  # what ranks ask for overlaps
    hole["radius"] = 0.8
    expected = solved("0.8 - hypot(x - 3, y - 2)").local
    np.testing.assert_allclose(solved(level).local, expected, atol=1e-9)
    hole["grows"] = 1e-3
    with pytest.raises(ValueError, match="shape of the domain changed since"):
        solved(level)


def test_problems_are_compared_and_hashed_by_what_they_hold():
    def made(scale=1.0):
        sides = {"left": m.Dirichlet(scale * np.ones(65)), "right": m.Robin(1.0, np.ones(65))}
        return m.Problem(CELLS, "diffusion", {"a": smooth(0), "f": torch.ones(NODES)}, sides)

    assert made() == made()
    assert len({made(), made()}) == 1
    assert made() != made(2.0)
    assert made() != made().with_fields(a=smooth(1))
    assert made() != made().with_fields(f=1.0)
    assert made().with_sides(m.Dirichlet(0.0)) != made()


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("drawn", ["f", "beside a well", "left"])
def test_what_a_function_draws_anew_each_time_is_not_solved_for(drawn, comm):
    rng = np.random.default_rng(0)

    def draw(x, y):
        return rng.standard_normal(x.shape)

    f = {"f": draw, "beside a well": m.Wells([((1.0, 1.0), 1.0)], beside=draw)}.get(drawn, 1.0)
    sides = {"left": m.Neumann(draw if drawn == "left" else 0.0)}
    problem = m.Problem(CELLS, "diffusion", {"a": 2.0, "f": f}, sides)
    with pytest.raises(ValueError, match="of the problem changed since"):
        m.solve(problem, ranks=comm)


def test_a_solution_is_not_saved_or_compared_with_data_that_changed(tmp_path):
    f, side = smooth(0), np.ones(65)
    problem = m.Problem(CELLS, "poisson", {"f": f}, {"left": m.Dirichlet(side)})
    solution = m.solve(problem, "exact")
    assert solution.compare("direct").max_error < 1e-6
    for values, name in ((f, "field f"), (side, "side left")):
        values *= 2.0
        for use in (solution.compare, lambda: solution.save(tmp_path / "u.h5")):
            with pytest.raises(ValueError, match=f"{name} of the problem changed since"):
                use()
        values /= 2.0
    assert not (tmp_path / "u.h5").exists()
    solution.save(tmp_path / "u.h5")


def test_one_solver_in_several_threads_gives_right_answers_or_one_line():
    problem = m.Problem(CELLS, "diffusion", {"a": smooth(0), "f": 1.0})
    answers, errors = [], []
    with m.Solver(problem, settings=EXACT) as solver:
        truth = solver().field

        def work(scale):
            for _ in range(5):
                try:
                    answers.append((scale, solver(problem.with_fields(f=scale)).field))
                except RuntimeError as error:
                    errors.append(str(error))

        threads = [threading.Thread(target=work, args=(1.0 + k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(answers) + len(errors) == 15
    assert all("this Solver is at work in another thread" in error for error in errors)
    for scale, field in answers:  # linear in f, and solved to 1e-11
        np.testing.assert_allclose(field, scale * truth, rtol=0, atol=1e-9 * abs(truth).max())


def test_an_adjoint_in_a_second_thread_is_right_or_refused_in_one_line():
    problem = m.Problem(CELLS, "diffusion", {"a": smooth(0), "f": 1.0})
    answers, errors = [], []
    with m.Solver(problem, settings=EXACT) as solver:
        solution = solver()
        w = np.ones(solution.field.shape)
        truth = m.adjoint(solution, w, solver=solver)["f"]

        def work(scale):
            for _ in range(4):
                try:
                    answers.append((scale, m.adjoint(solution, scale * w, solver=solver)["f"]))
                except RuntimeError as error:
                    errors.append(str(error))

        threads = [threading.Thread(target=work, args=(1.0 + k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(answers) + len(errors) == 12
    assert all("this Solver is at work in another thread" in error for error in errors)
    for scale, by in answers:  # linear in w, and solved to 1e-11
        assert by == pytest.approx(scale * truth, rel=1e-9)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_solver_is_not_copied(duplicate):
    with m.Solver(m.Problem(CELLS, "laplace")) as solver:
        with pytest.raises(TypeError, match="a Solver cannot be copied or pickled"):
            duplicate(solver)
        solver()


@pytest.mark.parametrize("equation", ["poisson", "diffusion", "quasilinear-diffusion"])
def test_after_a_failed_call_the_solver_repeats_the_problem_before(equation):
    problem = m.Problem(CELLS, equation, {"f": smooth(0)}, {"left": m.Dirichlet("y")})
    with m.Solver(problem, settings=EXACT) as solver:
        first = solver(problem).field
        second = solver(problem.with_fields(f=smooth(1))).field

        def stop(fraction, note):
            raise KeyError

        other = m.solve(m.Problem((32, 32), equation, {"f": 1.0}))
        failing = problem.with_fields(f=1e3 * smooth(2))
        bad = problem.with_fields(f=np.full(NODES, np.nan))
        for error, call in (
            (KeyError, lambda: solver(failing, progress=stop)),
            (ValueError, lambda: solver(bad)),
            (ValueError, lambda: solver(failing, start=other)),
        ):
            with pytest.raises(error):
                call()
            np.testing.assert_array_equal(solver().field, second)
        np.testing.assert_array_equal(solver(problem).field, first)


FORK = """
import multiprocessing, torch
import mosaicdd as m
torch.set_num_threads(2)
problem = m.Problem((64, 64), "diffusion", {"a": "1 + x"}, m.Dirichlet("x*y"))
def work(scale):
    return m.solve(problem.with_sides(m.Dirichlet(f"{scale}*x*y"))).field
before = work(2)
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(abs(pool.map(work, [2])[0] - before).max() < 1e-12)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="of systems that fork")
def test_a_process_that_was_forked_after_a_solve_solves():
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    ended = subprocess.run(
        [sys.executable, "-c", FORK],
        env=environment,
        timeout=100,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr
