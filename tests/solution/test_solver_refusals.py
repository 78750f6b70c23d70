"""What `Solver` and `solve` refuse: in one sentence, on all ranks."""

import numpy as np
import pytest
from mpi4py import MPI
from small_problems import CELLS, NODES, laplace, screened, source

from mosaicdd import Dirichlet, Neumann, Problem, Solver, SolveSettings, read, solve


@pytest.mark.ranks(1, 2, 3)
def test_fewer_ranks_than_dims_is_one_line(comm):
    with pytest.raises(ValueError, match=f"dims 7x2 need 14 ranks, there are {comm.size}"):
        Solver(laplace(), "exact", ranks=comm, settings=SolveSettings(dims=(2, 7)))


@pytest.mark.ranks(1, 2)
def test_a_solver_refuses_another_operator_and_a_closed_one_everything(comm):
    solver = Solver(screened(1.0), "exact", ranks=comm)
    for other in (screened(1.0, c=4.0), Problem((128, 128), "laplace")):
        with pytest.raises(ValueError, match="this Solver was planned for screened-poisson"):
            solver(other)
    natural = Problem(CELLS, "laplace", sides={"left": Neumann(0.0)})
    with pytest.raises(
        ValueError, match=r"another equation.* and another kind of sides: make a new one"
    ):
        solver(natural)
    solver.close()
    with pytest.raises(RuntimeError, match="this Solver has been closed; make a new one"):
        solver()


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Problem(CELLS, "laplace", {"c": 3.0}), "laplace has no field 'c'"),
        (lambda: screened(np.zeros((5, 5))), r"the field f has the shape \(5, 5\), the grid has"),
        (
            lambda: Problem(CELLS, "anisotropic-diffusion", {"axx": 1.0, "ayy": 1.0, "axy": 2.0}),
            "positive definite",
        ),
        (lambda: Problem(CELLS, "ripples"), "unknown pde 'ripples'.*; known: "),
        (lambda: Problem(CELLS, "laplace", sides={"middle": Dirichlet(0.0)}), "unknown side"),
    ],
)
def test_what_is_no_problem_is_refused_when_it_is_made(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("place", [(3, 5), (128, 192)])
def test_a_nan_in_one_rank_s_part_of_a_source_ends_all_ranks(place, comm):
    values = source()
    values[place] = np.nan
    with pytest.raises(ValueError, match="field f has 1 of"):
        Solver(screened(values), "exact", ranks=comm)
    with Solver(screened(source()), "exact", ranks=comm) as solver:
        with pytest.raises(ValueError, match="field f has 1 of"):
            solver(screened(values))
        assert solver(screened(source())).converged


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"local_solver": "nothing.h5"}, "local_solver: nothing.h5: neither a model file"),
        ({"window": ((0, 9), (0, 1))}, "window: y from 0 to 9 reaches beyond the domain"),
        ({"output": "missing/out.h5"}, "output: missing/out.h5: the folder missing does not exist"),
        ({"keep": "lines"}, "keep='lines' is unknown; known: field"),
        ({"settings": {"rtol": 1e-9}}, "settings must be a SolveSettings, got dict"),
        ({"local_solver": 3}, "local_solver: a name, a path or a LocalSolver is needed, got int"),
        ({"window": "a"}, r"window: the ends must be numbers \(\(y0, y1\), \(x0, x1\)\), got 'a'"),
        ({"window": ((0, np.inf), (0, 1))}, "window: y from 0 to inf reaches beyond the domain"),
        ({"ranks": 4}, "ranks must be an intracommunicator of mpi4py, Ranks or None, got int"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments, message):
    with pytest.raises((ValueError, TypeError, OSError), match=message):
        Solver(laplace(), **arguments)


def test_what_is_no_problem_is_named():
    with pytest.raises(TypeError, match="problem must be a Problem, got str"):
        Solver("laplace")
    with Solver(laplace(), "exact") as solver, pytest.raises(TypeError, match="got ndarray"):
        solver(np.zeros(NODES))


@pytest.mark.ranks(1, 2)
def test_a_start_that_does_not_fit_is_refused_in_one_sentence(comm, common_path):
    near = solve(laplace(), "exact", ranks=comm)
    near.save(common_path / "near.h5")
    comm.Barrier()
    small = solve(Problem((128, 128), "laplace"), "exact", ranks=comm)
    deep = solve(laplace(), "exact", ranks=comm, settings=SolveSettings(halo_depth=2))
    with Solver(laplace(), "exact", ranks=comm) as solver:
        for start in (read(common_path / "near.h5"), near.local, "near.h5"):
            with pytest.raises(TypeError, match="start must be a Solution that a Solver returned"):
                solver(start=start)
        with pytest.raises(ValueError, match=r"start has 128x128 cells .* the problem 192x128"):
            solver(start=small)
        if comm.size > 1:
            with pytest.raises(ValueError, match="start lies otherwise over the ranks"):
                solver(start=deep)
        assert solver(start=near).iterations == 1
    comm.Barrier()


def test_mpi_null_is_refused():
    with pytest.raises(ValueError, match="COMM_NULL"):
        solve(laplace(), ranks=MPI.COMM_NULL)


def test_what_a_solver_does_not_take_is_one_line_with_what_it_takes():
    message = "Solver takes no windows; known: window, keep, points, output"
    with pytest.raises(TypeError, match=message):
        Solver(laplace(), windows={"x": (0, 1)})
