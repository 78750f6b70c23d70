"""Newton's steps by sine transforms: right, alike on all ranks, as many at any size, and left where they are slow."""

import numpy as np
import pytest

from mosaicdd import Dirichlet, Domain, Problem, SolveSettings, solve
from mosaicdd.discretisation.discrete import MediumSystem
from mosaicdd.discretisation.system import nonlinear_system
from mosaicdd.grid.ghosts import GhostNodes
from mosaicdd.grid.partition import NodeBoxes, Partition
from mosaicdd.problems.operators.nonlinear_part import Linearised
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.base_engine import Stopwatch
from mosaicdd.solvers.newton.newton_equations import equations_of
from mosaicdd.solvers.newton.newton_steps import NewtonContext, NodesInside, sine_step
from mosaicdd.solvers.outcome import ERROR_STEP
from mosaicdd.solvers.references import solve_by_sine_transform, solve_directly

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
SIDES = Dirichlet("0.3*sin(3*x) + 0.2*y*y")


def partition_of(ranks, grid):
    boxes = NodeBoxes.of_size(grid, (False, False), 4)
    return Partition(boxes, ranks.fitted(boxes.counts))


def everything(grid):
    return tuple(slice(0, n) for n in grid.nodes)


class Case:
    """One equation's derivative at smooth values, on this rank."""

    def __init__(self, ranks, lattice, name, fields):
        grid = lattice.grid
        self.problem = Problem(Domain(grid.shape, grid.spacing), name, fields, SIDES)
        self.partition = partition = partition_of(ranks, grid)
        place = GhostNodes(partition, 10)
        self.inner = NodesInside(place, partition.layout)
        steps = NewtonContext(place, SolveSettings(), Stopwatch())
        (self.boundary,) = self.problem.boundaries(grid)
        y, x = np.meshgrid(*(np.arange(n) * grid.spacing for n in grid.nodes), indexing="ij")
        self.u = self.boundary.impose(0.3 * np.sin(3 * x) + 0.2 * y * y)
        solver = nonlinear_system(self.problem, grid)
        equations = equations_of(solver, place)(0, self.boundary)
        self.step = sine_step(steps, self.inner, equations, self.u[place.ghosted])
        self.place, self.grid = place, grid

    def exact(self, force):
        operator = self.problem.operator.on(self.grid, everything(self.grid))
        system = MediumSystem(Linearised(operator, self.u), self.grid)
        values = np.zeros(self.grid.nodes)
        values[1:-1, 1:-1] = system.solve(force[1:-1, 1:-1].ravel()).reshape(
            values[1:-1, 1:-1].shape
        )
        return values


@RANKS
@pytest.mark.parametrize("shape", [(7, 8), (9, 7)])
def test_the_harmonic_surface_is_that_of_a_direct_solve(ranks, make_lattice, shape):
    lattice = make_lattice(shape)
    partition = partition_of(ranks, lattice.grid)
    place = GhostNodes(partition, 10)
    boundary = Boundary.of_gaussian_process(lattice.grid, seed=1)
    one = Problem(Domain(lattice.grid.shape, lattice.grid.spacing), "laplace", {}, boundary)
    truth = solve_by_sine_transform(one)
    found = NodesInside(place, partition.layout).harmonic(boundary)
    inner = np.zeros_like(truth)
    inner[1:-1, 1:-1] = truth[1:-1, 1:-1]
    np.testing.assert_allclose(found, inner[place.owned], rtol=0, atol=1e-12)


@RANKS
@pytest.mark.parametrize(
    ("name", "fields"),
    [("poisson-boltzmann", {"c": "20 + x"}), ("minimal-surface", {}), ("p-laplace", {"p": 3.0})],
)
def test_a_step_is_what_the_derivative_asks_for(ranks, make_lattice, name, fields):
    case = Case(ranks, make_lattice((7, 8)), name, fields)
    force = np.random.default_rng(0).standard_normal(case.grid.nodes)
    change, truth = case.step(force[case.place.ghosted], 1e-10), case.exact(force)
    mine = truth[case.place.owned]
    # Of the residual 1e-10, through an inverse whose norm is below ten times that of Laplace's.
    np.testing.assert_allclose(change.values, mine, rtol=0, atol=1e-6 * abs(truth).max())
    assert change.size == pytest.approx(np.sqrt(np.square(truth[1:-1, 1:-1]).mean()), rel=1e-6)
    assert change.error < 1e-6 * change.size
    rows, columns = case.partition.samples(ERROR_STEP[2])
    sampled = truth[:: ERROR_STEP[2], :: ERROR_STEP[2]][rows, columns]
    np.testing.assert_allclose(change.at_samples(case.partition), abs(sampled), rtol=0, atol=1e-6)


@RANKS
@pytest.mark.parametrize("size", [1.0, 1e-60, 1e60])
def test_a_loose_step_has_the_digits_asked_for_whatever_the_numbers_size(ranks, make_lattice, size):
    """In float32, or where that is too short in float64."""
    case = Case(ranks, make_lattice((7, 8)), "p-laplace", {"p": 2.0, "a": size})
    force = size * np.random.default_rng(0).standard_normal(case.grid.nodes)
    change, truth = case.step(force[case.place.ghosted], 1e-4), case.exact(force)
    mine = truth[case.place.owned]
    # Random forces are rough: a residual of 1e-4 is an error of some 1e-3 of what smooth ones make.
    np.testing.assert_allclose(change.values, mine, rtol=0, atol=1e-3 * abs(truth).max())


def test_iterations_do_not_grow_with_the_grid(ranks, make_lattice):
    """Counted by the sine transforms that are asked for."""
    counts = []
    for cells in (8, 32):
        case = Case(
            ranks, make_lattice((cells, cells), size=4 / cells), "poisson-boltzmann", {"c": 1.0}
        )
        asked, plan = [], case.inner.inverse

        def counted(*of, plan=plan, asked=asked):
            solved = plan(*of)
            return lambda r: (asked.append(1), solved(r))[1]

        case.inner.inverse = counted
        y, x = np.meshgrid(*(np.linspace(0, 2, n) for n in case.grid.nodes), indexing="ij")
        case.step(np.cos(5 * x * y), 1e-8)
        counts.append(len(asked))
    assert counts[1] <= counts[0] + 1 <= 20


def test_what_takes_too_many_iterations_is_left_to_multigrid(ranks, make_lattice):
    lattice = make_lattice((8, 8))
    fields = {"p": 2.0, "a": lambda x, y: 10.0 ** (3 * np.sin(9 * x) * np.sin(8 * y))}
    case = Case(ranks, lattice, "p-laplace", fields)
    assert case.step(np.ones(lattice.grid.nodes), 1e-8) is None
    one = Problem(Domain((96, 96)), "p-laplace", fields | {"p": 3.0}, SIDES)
    solution = solve(one, settings=SolveSettings(rtol=1e-11))
    assert solution.status == "converged_rtol"
    np.testing.assert_allclose(solution.field, solve_directly(one), rtol=0, atol=1e-7)
