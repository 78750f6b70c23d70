"""When the iteration stops, and what it says then."""

import numpy as np
import pytest

from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.settings import StoppingRule

ACCELERATE = ["none", "chebyshev", "gmres"]
DRIVERS = pytest.mark.parametrize("accelerate", ACCELERATE)
LEVELS = [(1, "none"), (1, "gmres"), *((2, accelerate) for accelerate in ACCELERATE)]


@pytest.fixture
def lattice(make_lattice):
    return make_lattice((9, 8))


@pytest.mark.parametrize(("levels", "accelerate"), LEVELS)
@pytest.mark.parametrize("most", [1, 2, 3, 7, 31, 40])
def test_no_iteration_more_and_none_less_than_allowed(
    accelerate, levels, most, lattice, make_solver, problem
):
    boundary, _ = problem(lattice)
    seen = []
    solver = make_solver(
        lattice, levels=levels, accelerate=accelerate, rtol=0.0, max_iterations=most
    )
    solution = solver.solve(boundary, progress=lambda number, *_: seen.append(number))
    if levels == 2 and most > 20 and solution.converged:  # by then only rounding is left
        assert solution.status == "converged_rounding"
        most = solution.iterations
        assert most > 20
    else:
        assert solution.status == "diverged_max_iterations"
    assert solution.iterations == solution.sweeps == most
    assert seen == list(range(1, most + 1))
    history = solution.history
    for values in (history.update, history.residual, history.mae, history.seconds):
        assert len(values) == most
    assert np.all(np.diff(history.seconds) >= 0)


@DRIVERS
def test_an_iteration_that_rounding_stops_has_converged_to_that(
    accelerate, lattice, make_solver, problem
):
    boundary, truth = problem(lattice)
    solver = make_solver(lattice, accelerate=accelerate, rtol=0.0, max_iterations=1000)
    solution = solver.solve(boundary)
    assert solution.status == "converged_rounding"
    # Updates of a few eps of values below 4.
    np.testing.assert_allclose(solution.field, truth, rtol=0, atol=1e-13)


@DRIVERS
def test_the_update_of_the_last_iteration_alone_is_within_the_tolerance(
    accelerate, lattice, make_solver, problem
):
    boundary, _ = problem(lattice)
    sizes = []
    solver = make_solver(lattice, accelerate=accelerate, rtol=1e-6)
    solution = solver.solve(boundary, progress=lambda *state: sizes.append(state[1:3]))
    assert solution.status == "converged_rtol"
    update, size = sizes[-1]
    assert update <= 1e-6 * size
    if accelerate != "gmres":
        assert all(update > 1e-6 * size for update, size in sizes[:-1])
    # The size is the root mean square of the values inside, each counted once.
    inner = solution.interface.ownership().flat.numpy() == 1
    values = solution.interface.flat.numpy()[inner]
    assert len(values) == lattice.unknowns
    assert size == pytest.approx(np.sqrt(np.square(values).mean()), rel=1e-12)


def test_an_absolute_tolerance_is_met_whatever_the_size(lattice, make_solver, problem):
    boundary, _ = problem(lattice)
    solution = make_solver(lattice, rtol=0.0, atol=1e-4).solve(boundary)
    assert solution.status == "converged_atol"
    assert solution.history.update[-1] <= 1e-4 < solution.history.update[-2]


@DRIVERS
def test_zero_boundary_data_give_zero_at_once(accelerate, lattice, make_solver, problem):
    boundary, _ = problem(lattice)
    zero = boundary.each(lambda edge: 0 * edge)
    solution = make_solver(lattice, accelerate=accelerate).solve(zero)
    assert solution.status == "converged_rtol"
    assert solution.iterations == 1
    assert not solution.field.any()
    assert solution.error_estimate.rms == 0


@pytest.mark.parametrize(
    "settings",
    [{"levels": 2}, {"levels": 1, "sweep": "additive"}, {"levels": 1, "sweep": "phases"}],
)
def test_with_an_aim_for_the_mae_the_first_iteration_that_meets_it_is_the_last(
    settings, lattice, make_solver, problem
):
    boundary, truth = problem(lattice)
    solver = make_solver(lattice, until_mae=1e-3, rtol=0.5, max_iterations=1000, **settings)
    solution = solver.solve(boundary, reference=solver.reference(truth))
    assert solution.status == "converged_atol"
    assert solution.history.mae[-1] <= 1e-3 < min(solution.history.mae[:-1])
    on_lines = np.zeros(lattice.grid.nodes, bool)
    on_lines[:: lattice.spacing] = on_lines[:, :: lattice.spacing] = True
    values = np.zeros(lattice.grid.nodes)
    values[:, :: lattice.spacing] = solution.interface.lines[1][0].numpy().T
    values[:: lattice.spacing] = solution.interface.lines[0][0].numpy()
    error = np.abs(values - truth)[1:-1, 1:-1][on_lines[1:-1, 1:-1]].mean()
    assert solution.history.mae[-1] == pytest.approx(error, rel=1e-12)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("rtol", -1.0),
        ("rtol", np.nan),
        ("rtol", np.inf),
        ("atol", -1e-9),
        ("mae", -0.05),
        ("mae", np.nan),
        ("max_iterations", 0),
        ("max_iterations", -3),
    ],
)
def test_an_impossible_rule_is_refused_by_name(setting, value):
    with pytest.raises(ValueError, match=f"{setting} must be .* got"):
        StoppingRule(**{setting: value})


@pytest.mark.parametrize("accelerate", ["chebyshev", "none", "gmres"])
def test_a_start_far_from_a_solution_that_is_zero_ends(
    accelerate, make_lattice, make_solver, problem
):
    lattice = make_lattice((6, 7))
    boundary, _ = problem(lattice)
    start = make_solver(lattice).solve(boundary).interface
    nothing = Boundary.of_field(np.zeros(lattice.grid.nodes))
    solution = make_solver(lattice, accelerate=accelerate, rtol=1e-7).solve(nothing, start=start)
    assert solution.status == "converged_rtol"
    # The update ends at 1e-7 of 1e-9 of the start's size.
    assert np.abs(np.asarray(solution.field)).max() < 1e-14
