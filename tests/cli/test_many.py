"""``solve`` of many problems: batches, replicas, one file."""

import os
import signal

import h5py
import numpy as np
import pytest

import mosaicdd as m

SOLVE = "solve --cells 192x128 --local-solver exact --rtol 1e-9"
# Five problems that take different numbers of iterations.
ROUGH, STEEP = "gp:seed=2,noise=1.0", "'expr:exp(8*(x-3))*sin(8*y)'"
BOUNDARIES = "gp:seed=0,noise=0.0", "expr:0", "gp:seed=1,noise=0.1", STEEP, ROUGH
EDGES = "bottom", "top", "left", "right"
# Sums in another order differ by rounding, which a converging iteration does not pile up; the fields
# are of size 1 to 10.
ROUNDING = 1e-12


@pytest.fixture
def singles(succeed, common_path):
    """Return the solutions of the problems, solved one by one."""
    for number, boundary in enumerate(BOUNDARIES):
        succeed(f"{SOLVE} -o single{number}.h5 --boundary {boundary}")
    return [m.read(common_path / f"single{number}.h5") for number in range(5)]


@pytest.fixture
def problems(singles, common_path, comm):
    """Return the words for the file of the boundary data of all."""
    if comm.rank == 0:
        with h5py.File(common_path / "problems.h5", "w") as file:
            for name in EDGES:
                file[f"boundary/{name}"] = [each.boundary.named[name] for each in singles]
    comm.Barrier()
    return f"{SOLVE} -o out.h5 --boundary problems.h5"


@pytest.fixture
def path(common_path):
    return common_path / "out.h5"


def require_equal(path, singles):
    assert m.read(path).problems == len(singles)
    for number, single in enumerate(singles):
        stored = m.read(path, number)
        assert np.abs(stored.field - single.field).max() <= ROUNDING
        assert stored.status == single.status
        iterations = single.attributes["iterations"]
        assert stored.attributes["iterations"] == iterations == len(stored.history["update"])
        # Updates fall to 1e-9 of the size, so rounding is a larger share of them.
        updates = stored.history["update"], single.history["update"]
        np.testing.assert_allclose(*updates, rtol=1e-4, atol=ROUNDING)
        for name in EDGES:
            np.testing.assert_array_equal(stored.boundary.named[name], single.boundary.named[name])


@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize("batch", ["", "--batch 2", "--batch 1"])
def test_a_batch_equals_its_single_runs(batch, report_of, problems, singles, path):
    report = report_of(f"{problems} {batch}")
    iterations = [single.attributes["iterations"] for single in singles]
    assert len(set(iterations)) > 2
    assert report["iterations"] == max(iterations)
    require_equal(path, singles)


@pytest.mark.ranks(2, 4)
@pytest.mark.parametrize("batch", ["1", "2", "3"])
def test_replicas_equal_the_single_runs_with_uneven_shares_and_batches(
    batch, report_of, problems, singles, path, comm
):
    dims = "--dims 1x2" if comm.size == 4 else ""
    report = report_of(f"{problems} --replicas 2 {dims} --batch {batch}")
    assert (report["ranks"], report["replicas"]) == (comm.size, 2)
    assert report["dims"] == ([1, 2] if dims else [1, 1])
    require_equal(path, singles)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("method", ["--accelerate gmres", "--certify 1e-8"])
def test_gmres_and_certificates_take_all_at_once(method, report_of, problems, singles, path):
    assert report_of(f"{problems} {method}")["batch"] == 5
    for number, single in enumerate(singles):
        # Both stop at 1e-8 or less of the size, which is at most 10.
        truth = m.solve(single.problem, "exact", rtol=1e-12).field
        assert np.abs(m.read(path, number).field - truth).mean() <= 1e-7


@pytest.mark.ranks(1, 4)
def test_the_report_tells_the_worst_of_all_and_lists_each(report_of, problems, path):
    report = report_of(f"{problems} --max-iterations 4", code=1)
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


def test_a_range_of_seeds_is_as_many_problems_and_one_row_one(report_of, path):
    assert len(report_of(f"{SOLVE} -o out.h5 --boundary gp:seed=3..4")["problems"]) == 2
    second = m.read(path, 1).boundary.named["left"]
    assert "problems" not in report_of(f"{SOLVE} -o one.h5 --boundary gp:seed=4")
    np.testing.assert_array_equal(m.read("one.h5").boundary.named["left"], second)
    with h5py.File("row.h5", "w") as file:
        for name in EDGES:
            file[f"boundary/{name}"] = m.read("one.h5").boundary.named[name][None]
    assert "problems" not in report_of(f"{SOLVE} -o out.h5 --boundary row.h5")
    assert m.read(path).field.shape == (129, 193)


def test_solutions_of_many_problems_are_boundary_data_for_the_next(report_of, problems, path):
    first = report_of(problems)
    path.rename(path.with_name("first.h5"))
    second = report_of(f"{SOLVE} -o out.h5 --boundary first.h5")
    values = "iterations", "status", "update"
    for one, other in zip(first["problems"], second["problems"], strict=True):
        assert [one[name] for name in values] == [other[name] for name in values]


@pytest.mark.ranks(1, 2, 4)
def test_a_signal_keeps_what_is_done_and_leaves_the_rest_nan(
    report_of, problems, path, comm, monkeypatch
):
    """The last rank alone hears it, in its first batch; its group and the others stop."""
    from mosaicdd.schwarz.monitor import Monitor

    enter, entered = Monitor.enter, []

    def enter_and_interrupt(self, *arguments):
        entered.append(1)
        if len(entered) == 2 and comm.rank == comm.size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return enter(self, *arguments)

    monkeypatch.setattr(Monitor, "enter", enter_and_interrupt)
    report = report_of(f"{problems} --replicas {min(2, comm.size)} --batch 1", code=1)
    assert report["status"] == "interrupted"
    done = [one["problem"] for one in report["problems"] if one["iterations"] > 0]
    assert done == ([0] if comm.size == 1 else [0, 3])
    for number in range(5):
        stored = m.read(path, number)
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
    mosaicdd, common_path, path, monkeypatch
):
    machine = {"SC_PHYS_PAGES": 75, "SC_PAGE_SIZE": 4096}  # one of these problems takes 97 KiB
    monkeypatch.setattr("mosaicdd.parallel.machine.os.sysconf", machine.__getitem__)
    words = f"{SOLVE} -o {path} --boundary gp:seed=0..4 --batch"
    ended = mosaicdd(f"{words} 5")
    assert ended.code == 2
    assert ended.err.startswith("Error: --batch 5: needs at least ")
    assert ended.err.endswith("use more machines or a smaller batch\n")
    assert not path.exists()
    assert mosaicdd(f"{words} 2").code == 0


def test_people_read_how_many_ended_how(succeed, problems):
    out = succeed(f"{problems} --max-iterations 4", code=1)
    assert "laplace on 192x128 cells by exact: 5 problems, 5 at once, 1 rank (1x1)" in out
    assert "converged_rtol, " in out
    assert "diverged_max_iterations after up to 4 iterations" in out


@pytest.mark.usefixtures("quick_layout")
def test_compare_and_plot_take_all_or_the_problem_that_is_asked_for(
    succeed, report_of, error_of, refuse, path
):
    succeed(f"{SOLVE} -o out.h5 --boundary gp:seed=0..4")
    report = report_of("compare out.h5 --reference dst")
    assert len(report["problems"]) == 5
    assert report["max_error"] == max(one["max_error"] for one in report["problems"])
    maes = [one["mae"] for one in report["problems"]]
    assert report["mae"] == pytest.approx(np.mean(maes))
    for number in (0, 4):
        alone = report_of(f"compare out.h5 --reference dst --problem {number}")
        assert alone["mae"] == maes[number]
        succeed(f"plot out.h5 -o {number}.png --problem {number}")
    pictures = [path.with_name(f"{number}.png").read_bytes() for number in (0, 4)]
    assert pictures[0] != pictures[1]
    assert error_of("out.h5", "out.h5") == 0
    refuse("compare out.h5 --problem 5", "holds problems 0 to 4, not number 5")
