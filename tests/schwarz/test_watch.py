"""Interrupts and checkpoints: all ranks after the same iteration."""

import numpy as np
import pytest

from mosaicdd.parallel.launcher import Watch

pytestmark = pytest.mark.ranks(1, 2, 3, 4)


@pytest.fixture
def solve(make_lattice, make_solver, make_ranks, problem):
    """Return a function that solves a problem on all ranks."""
    lattice = make_lattice((7, 11))
    boundary, _ = problem(lattice)
    solver = make_solver(lattice, ranks=make_ranks())
    return lambda **how: solver.solve(boundary, **how)


def interrupting(watch, rank, iteration):
    """Return a progress function that interrupts one rank after an iteration."""

    def progress(number, *_):
        if number == iteration and rank:
            watch.interrupt()

    return progress


def test_an_interrupt_of_one_rank_stops_all_after_the_same_iteration(solve, comm):
    saved = []
    watch = Watch(lambda v, histories, *_: saved.append(len(histories[0].update)))
    progress = interrupting(watch, comm.rank == comm.size - 1, 3)
    solution = solve(watch=watch, progress=progress)
    assert solution.status == "interrupted"
    assert saved == [solution.iterations]
    assert len(set(comm.allgather(solution.iterations))) == 1


def test_going_on_from_an_interrupt_takes_the_same_iterations_to_the_same_field(solve, comm):
    whole = solve()
    watch = Watch(lambda *_: None)
    progress = interrupting(watch, comm.rank == 0, 4)
    part = solve(watch=watch, progress=progress)
    rest = solve(start=part.interface, histories=[part.history])
    assert part.iterations < rest.iterations == whole.iterations
    assert rest.history.update == whole.history.update
    np.testing.assert_array_equal(rest.field, whole.field)


def test_checkpoints_that_one_clock_calls_for_are_written_by_all(solve, comm):
    saved = []
    seconds = 0.0 if comm.rank == 0 else float("inf")
    watch = Watch(lambda v, histories, *_: saved.append(len(histories[0].update)), seconds)
    solution = solve(watch=watch)
    assert solution.converged
    assert saved == list(range(1, solution.iterations + 1))
