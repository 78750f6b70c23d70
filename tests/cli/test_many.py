"""``solve`` of many problems: batches, replicas, one file."""

import os
import signal

import h5py
import numpy as np
import pytest

from mosaicdd import read
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice, Subdomain
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.references.references import solve_by_sine_transform
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.stopping import Monitor
from mosaicdd.storage.inputs import write_boundaries

EXACT = ("--local-solver", "exact", "--rtol", "1e-9")
CELLS = ("--cells", "192x128")
LATTICE = Lattice(Grid((128, 192), Subdomain().spacing), Subdomain())
# Sums in another order differ by rounding, which a converging iteration does not pile up; the fields
# are of size 1 to 10.
ROUNDING = 1e-12


@pytest.fixture
def boundaries():
    """Return five problems that take different numbers of iterations."""
    rough = [
        Boundary.of_gaussian_process(LATTICE.grid, seed=seed, noise=noise)
        for seed, noise in ((0, 0.0), (1, 0.1), (2, 1.0))
    ]
    shaped = [Boundary.of_expression(text, LATTICE.grid) for text in ("0", "exp(8*(x-3))*sin(8*y)")]
    return [rough[0], shaped[0], rough[1], shaped[1], rough[2]]


@pytest.fixture
def problems_file(comm, common_path, boundaries):
    """Return a boundary file of these problems."""
    path = common_path / "problems.h5"
    if comm.rank == 0:
        with h5py.File(path, "w") as file:
            write_boundaries(file, boundaries)
    comm.Barrier()
    return path


@pytest.fixture
def solve(solve_json):
    return lambda *arguments: solve_json(*CELLS, *arguments)


@pytest.fixture
def single_runs(make_solver, boundaries):
    """Return the solutions of the problems, solved one by one on this rank alone."""
    solver = make_solver(LATTICE, rtol=1e-9)
    return [solver.solve(boundary) for boundary in boundaries]


def require_equal(path, single_runs, boundaries):
    assert read(path).problems == len(single_runs)
    for number, (single, boundary) in enumerate(zip(single_runs, boundaries, strict=True)):
        stored = read(path, number)
        assert np.abs(stored.field - single.field.numpy()).max() <= ROUNDING
        assert stored.attributes["status"] == single.status
        assert stored.attributes["iterations"] == single.iterations
        assert len(stored.history["update"]) == single.iterations
        # Updates fall to 1e-9 of the size, so rounding is a larger share of them.
        np.testing.assert_allclose(
            stored.history["update"], single.history.update, rtol=1e-4, atol=ROUNDING
        )
        for name in ("bottom", "top", "left", "right"):
            np.testing.assert_array_equal(stored.boundary.named[name], boundary.named[name])


@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize("batch", [(), ("--batch", "2"), ("--batch", "1")])
def test_a_batch_equals_its_single_runs(batch, solve, problems_file, single_runs, boundaries):
    code, report, path = solve(*EXACT, "--boundary", problems_file, *batch)
    assert code == 0
    assert len({single.iterations for single in single_runs}) > 2
    assert report["iterations"] == max(single.iterations for single in single_runs)
    require_equal(path, single_runs, boundaries)


@pytest.mark.ranks(4)
@pytest.mark.parametrize("batch", ["1", "2", "3"])
def test_replicas_equal_the_single_runs_with_uneven_shares_and_batches(
    batch, solve, problems_file, single_runs, boundaries
):
    arguments = ("--replicas", "2", "--dims", "1x2", "--batch", batch)
    code, report, path = solve(*EXACT, "--boundary", problems_file, *arguments)
    assert code == 0
    assert (report["ranks"], report["replicas"], report["dims"]) == (4, 2, [1, 2])
    require_equal(path, single_runs, boundaries)


@pytest.mark.ranks(2)
def test_replicas_of_one_rank_equal_the_single_runs(solve, problems_file, single_runs, boundaries):
    code, _, path = solve(*EXACT, "--boundary", problems_file, "--replicas", "2")
    assert code == 0
    require_equal(path, single_runs, boundaries)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("method", [("--accelerate", "gmres"), ("--certify", "1e-8")])
def test_gmres_and_certificates_take_all_at_once(method, solve, problems_file, boundaries):
    code, report, path = solve(*EXACT, "--boundary", problems_file, *method)
    assert (code, report["batch"]) == (0, 5)
    for number, boundary in enumerate(boundaries):
        truth = solve_by_sine_transform(Problem(boundary.shape, LAPLACE, sides=boundary))
        # Both stop at 1e-8 or less of the size, which is at most 10.
        assert np.abs(read(path, number).field - truth).mean() <= 1e-7


@pytest.mark.ranks(1, 4)
def test_the_report_tells_the_worst_of_all_and_lists_each(solve, problems_file, single_runs):
    code, report, path = solve(*EXACT, "--boundary", problems_file, "--max-iterations", "4")
    assert code == 1
    assert report["status"] == "diverged_max_iterations"
    listed = report["problems"]
    assert [one["problem"] for one in listed] == list(range(5))
    assert "converged_rtol" in {one["status"] for one in listed}
    for name in ("iterations", "update", "residual", "discrete_residual", "error_estimate"):
        assert report[name] == max(one[name] for one in listed)
    with h5py.File(path) as file:
        assert file["history/update"].shape == (5, 4)
        assert file["error_estimate"].shape == (5, 9, 13)
        assert file.attrs["status"] == "diverged_max_iterations"
        statuses = [text.decode() for text in file["problems/status"]]
        assert statuses == [one["status"] for one in listed]


def test_a_range_of_seeds_is_as_many_problems(solve):
    code, report, path = solve(*EXACT, "--boundary", "gp:seed=3..4")
    assert (code, len(report["problems"])) == (0, 2)
    expected = Boundary.of_gaussian_process(LATTICE.grid, seed=4)
    np.testing.assert_array_equal(read(path, 1).boundary.named["left"], expected.named["left"])


def test_a_file_with_one_row_is_one_problem(solve, common_path, boundaries):
    with h5py.File(common_path / "one.h5", "w") as file:
        write_boundaries(file, boundaries[:1])
    _, report, path = solve(*EXACT, "--boundary", common_path / "one.h5")
    assert "problems" not in report
    with h5py.File(path) as file:
        assert file["solution"].shape == (129, 193)


def test_solutions_of_many_problems_are_boundary_data_for_the_next(solve, problems_file):
    solve(*EXACT, "--boundary", problems_file)
    _, first, path = solve(*EXACT, "--boundary", problems_file)
    path.rename(path.with_name("first.h5"))
    _, second, _ = solve(*EXACT, "--boundary", path.with_name("first.h5"))
    assert second["problems"] == first["problems"]


@pytest.mark.ranks(1, 2, 4)
def test_a_signal_keeps_what_is_done_and_leaves_the_rest_nan(
    solve, problems_file, comm, monkeypatch
):
    """The last rank alone hears it, in its first batch; its group and the others stop."""
    enter, entered = Monitor.enter, []

    def enter_and_interrupt(self, *arguments):
        entered.append(1)
        if len(entered) == 2 and comm.rank == comm.size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return enter(self, *arguments)

    monkeypatch.setattr(Monitor, "enter", enter_and_interrupt)
    replicas = ("--replicas", str(min(2, comm.size)), "--batch", "1")
    code, report, path = solve(*EXACT, "--boundary", problems_file, *replicas)
    assert (code, report["status"]) == (1, "interrupted")
    done = [one["problem"] for one in report["problems"] if one["iterations"] > 0]
    assert done == ([0] if comm.size == 1 else [0, 3])
    for number in range(5):
        stored = read(path, number)
        if number in done:
            assert np.isfinite(stored.field).all()
        else:
            assert np.isnan(stored.field).all()
            assert stored.attributes["status"] == "interrupted"
            assert len(stored.history["update"]) == 0
    if comm.size > 1:
        assert report["problems"][0]["status"] == "converged_rtol"


@pytest.mark.ranks(1, 2)
def test_a_batch_that_does_not_fit_the_memory_is_refused_before_any_work(
    mosaicdd, common_path, problems_file, monkeypatch
):
    machine = {"SC_PHYS_PAGES": 75, "SC_PAGE_SIZE": 4096}  # one of these problems takes 97 KiB
    monkeypatch.setattr("mosaicdd.parallel.machine.os.sysconf", machine.__getitem__)
    path = common_path / "out.h5"
    command = ("solve", "-o", path, *CELLS, *EXACT, "--boundary", problems_file, "--batch")
    ended = mosaicdd(*command, "5")
    assert ended.code == 2
    assert ended.err.startswith("Error: --batch 5: needs at least ")
    assert ended.err.endswith("use more machines or a smaller batch\n")
    assert not path.exists()
    assert mosaicdd(*command, "2").code == 0


def test_people_read_how_many_ended_how(mosaicdd, common_path, problems_file):
    path = common_path / "out.h5"
    limits = ("--max-iterations", "4")
    ended = mosaicdd("solve", "-o", path, *CELLS, *EXACT, "--boundary", problems_file, *limits)
    assert ended.code == 1
    assert "laplace on 192x128 cells by exact: 5 problems, 5 at once, 1 rank (1x1)" in ended.out
    assert "converged_rtol, " in ended.out
    assert "diverged_max_iterations after up to 4 iterations" in ended.out


def test_compare_tells_the_errors_of_all_and_of_each(solve, mosaicdd, strict_json, problems_file):
    _, _, path = solve(*EXACT, "--boundary", problems_file)
    report = strict_json(mosaicdd("compare", path, "--reference", "dst", "--json").out)
    assert len(report["problems"]) == 5
    assert report["max_error"] == max(one["max_error"] for one in report["problems"])
    maes = [one["mae"] for one in report["problems"]]
    assert report["mae"] == pytest.approx(np.mean(maes))
    for number in (0, 4):
        alone = mosaicdd("compare", path, "--reference", "dst", "--json", "--problem", number)
        assert strict_json(alone.out)["mae"] == maes[number]
    same = strict_json(mosaicdd("compare", path, "--reference", path, "--json").out)
    assert same["max_error"] == 0
    ended = mosaicdd("compare", path, "--problem", "5")
    assert ended.code == 2
    assert "holds problems 0 to 4, not number 5" in ended.err


@pytest.mark.usefixtures("quick_layout")
def test_plot_draws_the_problem_that_is_asked_for(solve, mosaicdd, common_path, problems_file):
    _, _, path = solve(*EXACT, "--boundary", problems_file)
    pictures = []
    for number in ("0", "3"):
        picture = common_path / f"{number}.png"
        assert mosaicdd("plot", path, "-o", picture, "--problem", number).code == 0
        pictures.append(picture.read_bytes())
    assert pictures[0] != pictures[1]
