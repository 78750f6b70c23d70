"""`Solver` and `solve`: from a `Problem` to a `Solution`, as programs use them."""

import gc
import itertools
import logging
import os
import re

import h5py
import numpy as np
import pytest
import torch
from small_problems import CELLS, NODES, H, laplace, screened, source

from mosaicdd import (
    Dirichlet,
    Domain,
    Problem,
    Ranks,
    Solver,
    SolveSettings,
    Unsupported,
    read,
    solve,
)
from mosaicdd.grid.grid import Grid
from mosaicdd.solvers.multigrid.cycle import Cycle
from mosaicdd.solvers.multigrid.multigrid_system import MultigridSystem
from mosaicdd.solvers.references import solve_directly
from mosaicdd.solvers.transforms.sine_system import SineSystem

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
# Ranks add up in another order: a few units in the last place of values of order 1, per iteration.
ROUNDING = 1e-12
PRECISE = SolveSettings(rtol=1e-11)


@RANKS
@pytest.mark.parametrize(
    "make", [laplace, lambda: screened("sin(9*x)*y"), lambda: screened(source())]
)
def test_all_ranks_have_the_field_of_one(make, by_one, comm):
    problem = make()
    serial = by_one(solve, problem, "exact", settings=PRECISE)
    solution = solve(problem, "exact", ranks=comm, settings=PRECISE)
    assert solution.iterations == serial.iterations
    assert solution.gather().shape == NODES
    np.testing.assert_allclose(solution.field, serial.field, rtol=0, atol=ROUNDING)
    np.testing.assert_array_equal(solution.local, solution.field[solution.place])
    points = [[0.3, 0.2], [1.7, 1.99], [0.0, 0.5]]
    np.testing.assert_allclose(solution.at(points), serial.at(points), rtol=0, atol=ROUNDING)


@RANKS
def test_many_problems_are_one_array_whatever_the_groups_and_batches(comm, by_one):
    problem = screened(source(problems=5))
    settings = {"rtol": 1e-11, "batch": 2}
    serial = by_one(solve, problem, "exact", settings=SolveSettings(rtol=1e-11))
    assert serial.field.shape == (5, *NODES)
    for replicas in {1, 2, 3} & {n for n in range(1, 5) if comm.size % n == 0}:
        solution = solve(
            problem, "exact", ranks=comm, settings=SolveSettings(replicas=replicas, **settings)
        )
        np.testing.assert_allclose(solution.gather(), serial.field, rtol=0, atol=ROUNDING)
        np.testing.assert_array_equal(solution.local, solution.field[solution.place])
        assert [one["problem"] for one in solution.report["problems"]] == list(range(5))
        assert len(solution.history) == 5


@pytest.mark.ranks(2, 4, 6)
def test_a_communicator_of_the_user_is_taken_cartesian_or_not(comm):
    serial = solve(laplace(), "exact", settings=PRECISE)
    cart = comm.Create_cart((comm.size, 1), reorder=False)
    half = comm.Split(comm.rank % 2, comm.rank)
    for given in (comm, cart, half, Ranks.of(comm, (1, comm.size))):
        solution = solve(laplace(), "exact", ranks=given, settings=PRECISE)
        np.testing.assert_allclose(solution.gather(), serial.field, rtol=0, atol=ROUNDING)
    dims = solve(laplace(), "exact", ranks=cart, settings=PRECISE).report["dims"]
    assert dims == [1, comm.size]
    cart.Free()
    half.Free()


@RANKS
def test_a_solver_is_called_again_for_new_data(comm):
    first, second = screened(source(1)), screened(source(2))
    with Solver(first, "exact", ranks=comm, settings=PRECISE) as solver:
        one = solver()
        two = solver(second)
        again = solver(second, start=two)
    for solution, problem in ((one, first), (two, second)):
        truth = solve_directly(problem, Grid(CELLS, H))
        # Both stop at an update of 1e-11 of values of order 1.
        np.testing.assert_allclose(solution.gather(), truth, rtol=0, atol=1e-9)
    assert again.iterations < two.iterations
    np.testing.assert_allclose(again.gather(), two.gather(), rtol=0, atol=1e-9)


def test_a_source_may_come_and_go():
    with Solver(Problem(CELLS, "poisson", sides=Dirichlet("x*y")), settings=PRECISE) as solver:
        without = solver()
        with_source = solver(Problem(CELLS, "poisson", {"f": 1.0}, Dirichlet("x*y")))
        again = solver(Problem(CELLS, "poisson", sides=Dirichlet("x*y")))
    assert np.abs(with_source.field - without.field).max() > 0.1
    np.testing.assert_allclose(again.field, without.field, rtol=0, atol=ROUNDING)


def test_torch_in_is_torch_out():
    values = torch.from_numpy(source())
    solution = solve(screened(values), settings=PRECISE)
    assert isinstance(solution.field, torch.Tensor)
    assert isinstance(solution.local, torch.Tensor)
    assert isinstance(solution.at(torch.tensor([[0.5, 0.5]])), torch.Tensor)
    same = solve(screened(source()), settings=PRECISE)
    np.testing.assert_array_equal(solution.field.numpy(), same.field)
    sides = Dirichlet(torch.zeros(193)), Dirichlet(torch.zeros(129))
    problem = Problem(CELLS, "laplace", sides=dict(zip(("top", "left"), sides, strict=True)))
    assert isinstance(solve(problem).field, torch.Tensor)


@pytest.mark.nightly  # 170 solvers
@pytest.mark.ranks(2, 3)
def test_many_solvers_leak_no_communicator_and_no_memory(comm):
    problem = Problem((64, 64), "laplace", sides=Dirichlet("x*y"))

    def loop(count):
        for _ in range(count):
            with Solver(problem, "exact", ranks=comm) as solver:
                solver()
        gc.collect()
        with open(f"/proc/{os.getpid()}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    sizes = [loop(count) for count in (20, 50, 50, 50)]
    # One solver has 64 kB of values and plans, fifty 3.2 MB, which a leak takes each time; the allocator's
    # own unrest, 1 MB or two, in a process of many tests 5, comes once.
    assert min(after - before for before, after in itertools.pairwise(sizes)) < 2 * 2**20
    many = [comm.Dup() for _ in range(2000)]  # MPICH has 2048: would fail were those of 170 gone
    for communicator in many:
        communicator.Free()


@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize(  # by levels, and by waves
    ("shape", "equation", "fields"),
    [((64, 64), "diffusion", {"a": "1 + x*y"}), ((32, 32, 32), "poisson", {"f": 1.0})],
)
def test_what_is_planned_is_gone_with_its_solver(shape, equation, fields, comm):
    """Without the collector: of solves one after another the levels of several were there, each 90 bytes per node."""
    problem = Problem(Domain(shape, H), equation, fields, sides=Dirichlet(0.0))

    def alive():
        return sum(
            type(there) in (Cycle, MultigridSystem, SineSystem) for there in gc.get_objects()
        )

    gc.collect()
    before = alive()
    gc.disable()
    try:
        solve(problem, ranks=comm)
        assert alive() == before
    finally:
        gc.enable()


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float64", "float32")])
def test_a_start_of_another_precision_and_in_other_batches_is_converted(dtypes):
    first, second = dtypes
    problem = screened(source(problems=3))
    start = solve(problem, "exact", settings=SolveSettings(dtype=first, batch=2))
    settings = SolveSettings(dtype=second)
    begun, anew = (solve(problem, "exact", settings=settings, start=s) for s in (start, None))
    assert begun.converged
    assert begun.iterations < anew.iterations
    # Each stops at an update of at most 1e-5 of values of order 1, contracting by less than a half.
    np.testing.assert_allclose(begun.field, anew.field, rtol=0, atol=1e-4)


def test_points_are_a_list_or_an_array_and_take_no_source(tmp_path):
    problem = Problem(CELLS, "screened-poisson", {"c": 3.0}, Dirichlet("x - y"))
    path = tmp_path / "out.h5"
    with Solver(problem, points=[[1.0, 0.75]], output=path) as solver:
        at = solver().at([[1.0, 0.75]])
        with pytest.raises(Unsupported, match=r"planned with points, .* without a source"):
            solver(screened(1.0))
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["points"], [[1.0, 0.75]])
        np.testing.assert_allclose(file["values"], at, rtol=0, atol=ROUNDING)


@RANKS
def test_a_solve_may_write_its_field_instead_of_keeping_it(comm, common_path):
    kept = solve(laplace(), ranks=comm)
    kept.save(common_path / "kept.h5")
    comm.Barrier()
    written = solve(laplace(), ranks=comm, output=common_path / "written.h5")
    np.testing.assert_array_equal(written.gather(), kept.gather())
    np.testing.assert_array_equal(written.local, kept.local)
    one, other = (read(common_path / f"{n}.h5") for n in ("kept", "written"))
    np.testing.assert_array_equal(one.field, other.field)
    np.testing.assert_array_equal(one.error_map, other.error_map)
    assert one.attributes["unknowns"] == other.attributes["unknowns"]
    with pytest.raises(RuntimeError, match="is kept there only"):
        written.save(common_path / "again.h5")
    comm.Barrier()


@RANKS
def test_a_file_holds_parameters_and_source(comm, common_path):
    path = common_path / "out.h5"
    values = source()
    solve(screened(values), ranks=comm).save(path)
    comm.Barrier()
    stored = read(path)
    assert stored.fields["c"] == 3.0
    np.testing.assert_array_equal(stored.fields["f"], values)
    assert stored.attributes["parameters"] == {"c": 3.0}
    comm.Barrier()


@pytest.mark.ranks(1, 2, 4)
def test_groups_write_one_file_with_the_source_of_each_problem(comm, common_path):
    values = source(problems=5)
    settings = SolveSettings(replicas=min(2, comm.size), batch=2)
    path = common_path / "out.h5"
    written = solve(screened(values), "exact", ranks=comm, settings=settings, output=path)
    kept = solve(screened(values), "exact")
    np.testing.assert_allclose(written.field, kept.gather(), rtol=0, atol=ROUNDING)
    np.testing.assert_array_equal(read(path, 4).fields["f"], values[4])
    comm.Barrier()


def test_the_times_of_a_second_call_are_its_own(tmp_path):
    with Solver(laplace(), "exact", output=tmp_path / "out.h5") as solver:
        first, second = solver(), solver()
    for solution in (first, second):
        parts = {name: s for name, s in solution.seconds.items() if name != "total"}
        assert min(parts.values()) >= 0
        assert sum(parts.values()) <= solution.seconds["total"]


def test_progress_goes_from_nothing_to_almost_all():
    seen = []
    solve(laplace(), "exact", progress=lambda fraction, note: seen.append((fraction, note)))
    fractions = [fraction for fraction, _ in seen]
    assert fractions == sorted(fractions)
    assert fractions[0] < 0.2
    assert "relative update" in seen[-1][1]


def test_a_domain_with_a_spacing_of_its_own_scales_a_network_without_scales():
    unit = Problem(Domain((128, 128), 1.0), "laplace", sides=Dirichlet("(x*x - y*y)/1000"))
    solution = solve(unit)
    assert solution.report["local_solver"] == "laplace"
    assert solution.x[-1] == 128.0
    x, y = np.meshgrid(solution.x, solution.y)
    # What the lifting knows is exact: only the iteration's tolerance of 1e-7 remains.
    np.testing.assert_allclose(solution.field, (x * x - y * y) / 1000, rtol=0, atol=1e-5)


def test_who_listens_to_the_packages_logger_hears_of_plans_and_solves(caplog):
    caplog.set_level("INFO", logger="mosaicdd")
    solve(Problem((64, 64), "laplace", sides=Dirichlet("x")))
    planned, solved = [record.getMessage() for record in caplog.records]
    assert planned == "planned laplace by laplace"
    assert re.fullmatch(r"converged_rtol after \d+ iterations, \d+\.\d\d s", solved)
    assert logging.getLogger("mosaicdd").handlers == []
