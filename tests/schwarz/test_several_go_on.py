"""Several problems that were interrupted or killed: what had ended is kept as it was, the others go on."""

import h5py
import numpy as np
import pytest

from mosaicdd import Dirichlet, Domain, Output, Problem, Robin, Solver, SolveSettings, solve
from mosaicdd.problems.shapes.shape import Level
from mosaicdd.problems.sides.boundary import BoundarySpec
from mosaicdd.solution import checkpoints
from mosaicdd.solution.checkpoints import Checkpoints

CELLS = (64, 96)
pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)
SIDES = "left", "right", "bottom", "top"
DATA = ["x - y", "2*x", "sin(3*x) + y", "x*y", "0.5 - y"]


def laplace():
    return Problem(CELLS, "laplace", sides=BoundarySpec("gp:seed=0..4"))


def medium():
    return Problem(CELLS, "diffusion", {"a": "1.5 + sin(9*x*y)"}, Dirichlet(DATA))


def hole():
    sides = {"hole1": Robin(2.0, 1.0)}
    domain = Domain(CELLS, shape=Level("0.2 - hypot(x - 0.7, y - 0.5)"))
    return Problem(
        domain, "diffusion", {"a": "1.5 + x"}, sides | dict.fromkeys(SIDES, Dirichlet(DATA))
    )


def sinh():
    return Problem(CELLS, "poisson-boltzmann", {"c": 10.0}, Dirichlet(DATA))


ENGINES = {
    "at once": (laplace, "exact", {"levels": 1, "sync": "phase", "rtol": 1e-4, "batch": 2}),
    "krylov": (laplace, "exact", {"accelerate": "gmres", "batch": 2}),
    "network": (laplace, "laplace", {"batch": 2}),
    "multigrid": (medium, "exact", {"batch": 2}),
    "hole": (hole, "exact", {"batch": 3}),
    "newton": (sinh, "exact", {"rtol": 1e-10, "batch": 2}),
}


def contents(path, comm):
    """Return the fields, statuses, and numbers per iteration in a file, on all ranks."""
    comm.Barrier()
    with h5py.File(path) as file:
        names = "update", "residual", "seconds"
        history = {name: file[f"history/{name}"][()] for name in names}
        got = file["solution"][()], file["problems/status"].asstr()[()].tolist(), history
        maps = file["error_estimate"][()]
    comm.Barrier()
    return *got, maps


def interrupted_at(how, calls, path, comm, **settings):
    """Solve until progress has been told so often; return the solution and what is in its file."""
    make, local_solver, given = ENGINES[how]
    settings = SolveSettings(**(given | settings))
    left = [calls]
    with Solver(make(), local_solver, settings=settings, ranks=comm, output=path) as solver:

        def progress(fraction, note):
            left[0] -= 1
            if not left[0]:
                solver.interrupt()

        part = solver(progress=progress)
    return part, contents(path, comm)


DAILY = "at once", "multigrid", "newton"
EACH = [pytest.param(how, marks=[] if how in DAILY else pytest.mark.nightly) for how in ENGINES]


@pytest.mark.parametrize("how", EACH)
def test_an_interrupted_solve_of_several_problems_goes_on(how, common_path, comm, monkeypatch):
    monkeypatch.setattr(checkpoints, "_SOON", 0.0)
    make, local_solver, given = ENGINES[how]
    settings, path = SolveSettings(**given), common_path / "out.h5"
    whole_path = common_path / "whole.h5"
    whole = solve(make(), local_solver, settings=settings, ranks=comm, output=whole_path)
    assert whole.converged
    calls = 1 + sum(row["iterations"] for row in whole.report["problems"]) // 2
    if how in ("at once", "krylov", "network", "averages"):
        calls = whole.iterations + 2
    part, (_, statuses, before, _) = interrupted_at(how, calls, path, comm)
    assert part.status == "interrupted", (calls, statuses)
    assert 0 < statuses.count("interrupted") < len(statuses), statuses
    assert part.checkpoint.is_dir()
    again = Output(path, resume=True)
    rest = solve(make(), local_solver, settings=settings, ranks=comm, output=again)
    assert rest.converged, rest.report
    assert not part.checkpoint.exists()
    fields, _, after, errors = contents(path, comm)
    truth, _, _, known = contents(whole_path, comm)
    for i, status in enumerate(statuses):
        ended = len(before["seconds"][i][~np.isnan(before["seconds"][i])])
        if status != "interrupted":  # it was not solved anew
            np.testing.assert_array_equal(after["seconds"][i][:ended], before["seconds"][i][:ended])
            assert rest.report["problems"][i]["iterations"] == ended
            np.testing.assert_allclose(errors[i], known[i], rtol=0, atol=1e-6)
    iterations = [[row["iterations"] for row in s.report["problems"]] for s in (whole, rest)]
    # Multigrid's gradients begin without the direction of before, which a checkpoint does not hold; of averages it holds
    # the lines alone, with nothing of the coarse grid between them.
    more = np.subtract(*iterations[::-1])
    allowed = {"multigrid": 2, "hole": 2, "averages": 4, "krylov": 1}.get(how, 0)
    assert ((more >= 0) & (more <= allowed)).all(), iterations
    scale = np.nanmax(np.abs(truth))
    np.testing.assert_allclose(fields, truth, rtol=0, atol=2e-7 * scale)
    if how == "at once":
        np.testing.assert_array_equal(fields, truth)


class KilledError(Exception):
    """Stands for the end of all processes."""


def solve_until_killed(rounds, monkeypatch, how, path, comm, **changes):
    """Solve until all ranks end, with no time for anything more, after so many rounds are kept."""
    keep, left = Checkpoints.ended, [rounds]

    def killed(self, *given, **more):
        keep(self, *given, **more)
        left[0] -= 1
        if not left[0]:
            raise KilledError

    make, local_solver, given = ENGINES[how]
    settings = SolveSettings(**(given | changes))
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "ended", killed)
        with pytest.raises(KilledError):
            solve(make(), local_solver, settings=settings, ranks=comm, output=path)
    return settings


@pytest.mark.parametrize(
    "how",
    ["hole", *(pytest.param(how, marks=pytest.mark.nightly) for how in ("at once", "newton"))],
)
def test_a_killed_solve_goes_on_by_other_ranks_and_batches(how, common_path, comm, monkeypatch):
    monkeypatch.setattr(checkpoints, "_SOON", 0.0)
    make, local_solver, given = ENGINES[how]
    settings, path = SolveSettings(**given), common_path / "out.h5"
    solve_until_killed(1, monkeypatch, how, path, comm)
    comm.Barrier()
    assert not path.exists()
    comm.Barrier()
    if comm.rank == 0:
        other = settings.with_changes(batch=1)
        rest = solve(make(), local_solver, settings=other, output=Output(path, resume=True))
        assert rest.converged
        reference = solve(make(), local_solver, settings=settings)
        scale = np.nanmax(np.abs(reference.field))
        np.testing.assert_allclose(rest.field, reference.field, rtol=0, atol=2e-7 * scale)
        batch = given["batch"]
        iterations = [
            [row["iterations"] for row in s.report["problems"]] for s in (rest, reference)
        ]
        assert iterations[0][:batch] == iterations[1][:batch]
    comm.Barrier()


@pytest.mark.ranks(2, 4, 6)
def test_groups_of_ranks_are_killed_and_one_group_goes_on(common_path, comm, monkeypatch):
    monkeypatch.setattr(checkpoints, "_SOON", 0.0)
    make, local_solver, _ = ENGINES["multigrid"]
    path = common_path / "out.h5"
    where = "multigrid", path, comm
    groups = solve_until_killed(2, monkeypatch, *where, batch=1, replicas=2)
    settings = groups.with_changes(replicas=1)
    rest = solve(
        make(), local_solver, settings=settings, ranks=comm, output=Output(path, resume=True)
    )
    reference = solve(make(), local_solver, ranks=comm)
    assert rest.converged
    scale = np.abs(reference.gather()).max()
    np.testing.assert_allclose(rest.gather(), reference.gather(), rtol=0, atol=2e-7 * scale)
    assert len(rest.report["problems"]) == len(DATA)


def test_when_all_had_ended_nothing_is_solved(common_path, comm, monkeypatch):
    monkeypatch.setattr(checkpoints, "_SOON", 0.0)
    make, local_solver, given = ENGINES["multigrid"]
    path, settings = common_path / "out.h5", SolveSettings(**given)
    solve_until_killed(3, monkeypatch, "multigrid", path, comm)
    rest = solve(
        make(), local_solver, settings=settings, ranks=comm, output=Output(path, resume=True)
    )
    assert rest.converged
    reference = solve(make(), local_solver, settings=settings, ranks=comm)
    np.testing.assert_array_equal(rest.gather(), reference.gather())


def test_out_of_iterations_problems_go_on_with_more(common_path, comm, monkeypatch):
    monkeypatch.setattr(checkpoints, "_SOON", 0.0)
    make, local_solver, given = ENGINES["multigrid"]
    path, settings = common_path / "out.h5", SolveSettings(**given)
    less = settings.with_changes(max_iterations=3)
    part = solve(make(), local_solver, settings=less, ranks=comm, output=path)
    assert part.status == "diverged_max_iterations"
    rest = solve(
        make(), local_solver, settings=settings, ranks=comm, output=Output(path, resume=True)
    )
    assert rest.converged
    assert min(row["iterations"] for row in rest.report["problems"]) > 3
    reference = solve(make(), local_solver, settings=settings, ranks=comm)
    scale = np.abs(reference.gather()).max()
    np.testing.assert_allclose(rest.gather(), reference.gather(), rtol=0, atol=2e-7 * scale)


def test_other_data_and_other_numbers_of_problems_are_refused(common_path, comm, monkeypatch):
    monkeypatch.setattr(checkpoints, "_SOON", 0.0)
    path = common_path / "out.h5"
    part, _ = interrupted_at("multigrid", 9, path, comm)
    kept = {file.name: file.read_bytes() for file in part.checkpoint.iterdir()}
    comm.Barrier()
    fields = {"a": "1.5 + sin(9*x*y)"}
    others = {
        "boundary": Problem(CELLS, "diffusion", fields, Dirichlet([*DATA[:4], "y"])),
        "problems": Problem(CELLS, "diffusion", fields, Dirichlet(DATA[:4])),
        "field a|parameters": Problem(CELLS, "diffusion", {"a": "1.5 + x*y"}, Dirichlet(DATA)),
    }
    for what, other in others.items():
        with pytest.raises(ValueError, match=f"belongs to another problem: its ({what})") as raised:
            solve(other, "exact", ranks=comm, output=Output(path, resume=True))
        assert len(str(raised.value).splitlines()) == 1
    single = Problem(CELLS, "diffusion", fields, Dirichlet("y"))
    with pytest.raises((ValueError, OSError), match="a folder"):
        solve(single, "exact", ranks=comm, output=Output(path, resume=True))
    comm.Barrier()
    assert {file.name: file.read_bytes() for file in part.checkpoint.iterdir()} == kept
    comm.Barrier()
    # Begun anew, what is left of the other run is of no use.
    assert solve(others["problems"], ranks=comm, output=Output(path, overwrite=True)).converged
    assert not part.checkpoint.exists()
