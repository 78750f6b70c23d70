"""No status contradicts what was measured: fields that are corrupted on purpose, rounding, estimates."""

import math

import h5py
import numpy as np
import pytest
import torch

from mosaicdd import Dirichlet, Domain, Problem, SolveSettings, solve
from mosaicdd.grid.window import Strip
from mosaicdd.schwarz.fill import InteriorReconstruction
from mosaicdd.solvers.measure import ResidualScale
from mosaicdd.solvers.multigrid.multigrid_system import MultigridSystem
from mosaicdd.solvers.newton.newton import Newton
from mosaicdd.solvers.newton.newton_equations import NewtonEquations
from mosaicdd.solvers.outcome import PLAUSIBLE, StatusEvidence, verdict
from mosaicdd.solvers.settings import CONVERGED

OTHERS = ("diverged_max_iterations", "diverged_nan", "diverged_tolerance", "interrupted")
CELLS = (128, 128)
SIDES = Dirichlet("sin(3*x) + y*y")


def noisy(values, size=1e-2):
    """Return values with noise beside their size, which no smooth error has."""
    rng = np.random.default_rng(0)
    return values + size * torch.from_numpy(rng.standard_normal(values.shape)).to(values)


def corrupt(monkeypatch, where, name):
    """Let what yields strips yield them with noise."""
    strips = getattr(where, name)

    def corrupted(*arguments, **options):
        for strip in strips(*arguments, **options):
            yield Strip(noisy(strip.values), strip.inner, strip.place)

    monkeypatch.setattr(where, name, corrupted)


def corrupt_constants(monkeypatch):
    corrupt(monkeypatch, InteriorReconstruction, "strips")


def corrupt_medium(monkeypatch):
    field = MultigridSystem.field

    def corrupted(self, *arguments):
        values = field(self, *arguments)
        values[...] = noisy(torch.from_numpy(values)).numpy()
        return values

    monkeypatch.setattr(MultigridSystem, "field", corrupted)


def corrupt_newton(monkeypatch):
    run = Newton.run

    def corrupted(self, *arguments):
        run(self, *arguments)
        values = torch.from_numpy(self._place.without_ghosts(self.u).copy())
        self._take(self._place.with_ghosts(noisy(values)))

    monkeypatch.setattr(Newton, "run", corrupted)


MEDIUM = {"a": "exp(sin(3*x)*y)"}
SURFACE = Problem(Domain(CELLS), "minimal-surface", {}, Dirichlet("0.2*sin(3*x)"))
LAPLACE = Problem(Domain(CELLS), "laplace", {}, SIDES)
DIFFUSION = Problem(Domain(CELLS), "diffusion", MEDIUM, SIDES)
FLOWING = Problem(Domain(CELLS), "advection-diffusion", {"bx": "40*(y-1)", "by": "40*(1-x)"}, SIDES)
ENGINES = {
    "constants exactly": (LAPLACE, "exact", {}, corrupt_constants),
    "constants on one level": (LAPLACE, "exact", {"levels": 1, "rtol": 1e-4}, corrupt_constants),
    "constants by a network": (LAPLACE, "laplace", {}, corrupt_constants),
    "a certificate": (LAPLACE, "laplace", {"certify": 1e-9}, corrupt_constants),
    "a medium": (DIFFUSION, "exact", {}, corrupt_medium),
    "a flow": (FLOWING, "exact", {}, corrupt_medium),
    "Newton's method": (SURFACE, "exact", {}, corrupt_newton),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_no_engine_says_that_a_corrupted_field_has_converged(engine, monkeypatch):
    problem, local_solver, options, corrupted = ENGINES[engine]
    settings = SolveSettings(**options)
    assert solve(problem, local_solver=local_solver, settings=settings).converged
    corrupted(monkeypatch)
    assert solve(problem, local_solver=local_solver, settings=settings).status == "stagnated"


@pytest.mark.parametrize("measure", [np.inf, np.nan])
def test_beside_a_measure_that_is_no_number_nothing_has_converged(measure, monkeypatch):
    nothing_known = np.array([measure]), np.zeros(1)
    monkeypatch.setattr(ResidualScale, "__call__", lambda *data, **options: nothing_known)
    with np.errstate(invalid="ignore"):
        solution = solve(Problem(Domain((24, 24)), "diffusion", {"a": "1 + x", "f": 1.0}, SIDES))
    assert solution.status not in CONVERGED
    assert math.isnan(solution.report["discrete_residual"])


def test_nor_do_the_file_and_the_exit_code(mosaicdd, tmp_path, monkeypatch):
    command = ("solve", "-o", str(tmp_path / "out.h5"), "--cells", "64x64", "--json")
    assert mosaicdd(*command).code == 0
    corrupt_constants(monkeypatch)
    assert mosaicdd(*command).code == 1
    with h5py.File(tmp_path / "out.h5") as file:
        assert file.attrs["status"] == "stagnated"


@pytest.fixture(scope="module")
def channels():
    """Return diffusion from sources in channels that conduct 1e9 times better than what is around them.

    Rounding the values alone leaves some 1e-6 of the right-hand side.
    """
    rng = np.random.default_rng(0)
    a = np.full((129, 129), 1e-9)
    for _ in range(8):
        y, x, end = rng.integers(4, 120, 3)
        a[y : y + 1 + end % 4, 4:120] = a[min(y, end) : max(y, end), x : x + 3] = 1.0
    return Problem(Domain(CELLS), "diffusion", {"a": a, "f": 1.0})


@pytest.mark.parametrize("rtol", [1e-8, 1e-12])
def test_a_residual_as_small_as_rounding_allows_has_converged_to_that(channels, rtol):
    solution = solve(channels, settings=SolveSettings(rtol=rtol))
    assert solution.status == "converged_rounding"
    assert solution.converged
    residual, rounding = (solution.report[name] for name in ("discrete_residual", "rounding"))
    assert rtol < residual <= 4 * rounding
    assert solution.error_estimate < PLAUSIBLE * np.abs(solution.field).max()


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("cells", [64, 128, 256])
def test_updates_that_rounding_makes_end_an_iteration_by_subdomains(cells, comm):
    problem = Problem((cells, cells), "poisson", {"f": 1.0}, Dirichlet("sin(3*x + y)"))
    solution = solve(problem, "exact", rtol=1e-17, ranks=comm)
    assert solution.status == "converged_rounding"
    assert solution.iterations < SolveSettings().stopping.max_iterations
    assert solution.report["discrete_residual"] <= 4 * solution.report["rounding"]


def test_rounding_is_no_certificate(channels):
    solution = solve(channels, settings=SolveSettings(certify=1e-8))
    assert solution.status == "stagnated"


def test_several_problems_are_judged_one_by_one(channels):
    both = channels.with_fields(f=np.stack([np.ones((129, 129)), np.zeros((129, 129))]))
    solution = solve(both)
    assert [one.report["status"] for one in solution.results] == [
        "converged_rounding",
        "converged_rtol",
    ]
    assert solution.status == "converged_rounding"


def test_the_command_says_both_numbers_and_ends_with_0(channels, mosaicdd, tmp_path):
    np.save(tmp_path / "a.npy", channels.fields["a"])
    done = mosaicdd(
        *("solve", "-o", str(tmp_path / "out.h5"), "--cells", "128x128", "--pde", "diffusion"),
        *("--field", f"a={tmp_path / 'a.npy'}", "--field", "f=1", "--boundary", "expr:0"),
    )
    assert done.code == 0
    assert "converged_rounding after" in done.out
    assert "(rounding to float64 alone: " in done.out
    with h5py.File(tmp_path / "out.h5") as file:
        assert file.attrs["status"] == "converged_rounding"
        assert file.attrs["discrete_residual"] <= 4 * file.attrs["rounding"]


@pytest.mark.parametrize("status", CONVERGED)
def test_what_meets_its_promise_stays_as_it_is(status):
    assert verdict(status, StatusEvidence(1e-8, 1.0, 1e-9, 1e-9)) == status
    assert verdict(status, StatusEvidence(1e-8, 1.0)) == status  # nothing was measured


@pytest.mark.parametrize("status", OTHERS)
def test_what_has_not_converged_never_does(status):
    assert verdict(status, StatusEvidence(0.0, 1.0, 0.0, 1.0, 1.0)) == status


@pytest.mark.parametrize("status", [*CONVERGED, "stagnated"])
@pytest.mark.parametrize(
    "evidence",
    [
        StatusEvidence(0.11, 1.0, 0.0),
        StatusEvidence(math.nan, 1.0, 0.0),
        StatusEvidence(math.inf, 1.0, 0.0),
        StatusEvidence(0.0, 1.0, 1.1e-8, 1e-8),
        StatusEvidence(0.0, 1.0, math.nan, 1e-8, 1.0),
        StatusEvidence(0.0, 1.0, 1e-2, 1e-8, 1.0),  # where rounding leaves nothing of the data
        StatusEvidence(0.0, 1.0, 1e-6, 1e-8, 1e-7),
        StatusEvidence(1e300, math.inf, 1.0, 1e-8, math.inf, visible=math.inf),
        StatusEvidence(1e300, math.inf, math.inf, 1e-8, math.inf, visible=math.inf),
    ],
    ids=str,
)
def test_what_contradicts_a_status_makes_it_stagnated(status, evidence):
    assert verdict(status, evidence) == "stagnated"


def test_newtons_method_that_rounding_stops_has_converged_to_that():
    solution = solve(SURFACE, settings=SolveSettings(rtol=1e-17))
    assert solution.status == "converged_rounding"
    assert solution.report["failure"] is None


def test_what_hardly_leaves_its_subdomain_has_converged():
    """A well, and a reaction so strong that the lattice lines between which it lies see nothing of it."""
    source = np.zeros((129, 129))
    source[56, 56] = 1.0
    problem = Problem(Domain(CELLS, 10.0), "screened-poisson", {"c": 0.06, "f": source})
    solution = solve(problem, "exact", rtol=1e-9)
    assert solution.status == "converged_rtol"
    assert solution.report["discrete_residual"] < 1e-13


def test_an_error_of_a_residual_is_not_taken_for_no_rounding(monkeypatch):
    def fails(self, u):
        raise ValueError("a rule of the user's own")

    monkeypatch.setattr(NewtonEquations, "diagonal", fails)
    one = Problem((16, 16), "poisson-boltzmann", {"f": "9*x"}, Dirichlet("x"))
    with pytest.raises(ValueError, match="a rule of the user's own"):
        solve(one, settings=SolveSettings(rtol=1e-18))
