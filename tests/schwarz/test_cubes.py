"""Half-overlapping cubes: constant coefficients on boxes, by subdomains that share one exact operator."""

import math
import weakref

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import mosaicdd as m
from mosaicdd import SolveSettings
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.parallel.halo import HaloExchange
from mosaicdd.schwarz.block import Lattice
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.local_solvers.exact import Exact

H = 1 / 16
BOUNDARY = "sin(3*x)*exp(y) + cos(5*z)*x"
CASES = {
    "laplace": {},
    "poisson": {"f": "sin(4*x)*y + z"},
    "screened-poisson": {"c": 20.0, "f": "x*y*z"},
}


def box(cells, equation="laplace", **fields):
    """Return a problem with the equation's data of `CASES`, and others."""
    data = m.Dirichlet(BOUNDARY)
    return m.Problem(m.Domain(cells, H), equation, CASES[equation] | fields, data)


def factorised(problem):
    """Solve the seven-point equations by a sparse factorisation, without the package's own matrices."""
    cells, c = problem.domain.cells, problem.fields.get("c", 0.0)
    z, y, x = np.meshgrid(*(H * np.arange(n + 1) for n in cells), indexing="ij")
    field = np.sin(3 * x) * np.exp(y) + np.cos(5 * z) * x
    sources = {"laplace": 0 * x, "poisson": np.sin(4 * x) * y + z, "screened-poisson": x * y * z}
    matrix = scipy.sparse.csc_array((1, 1))
    for n in cells:
        line = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n - 1, n - 1))
        matrix = scipy.sparse.kronsum(line, matrix)
    matrix = matrix + c * H**2 * scipy.sparse.eye_array(matrix.shape[0])
    b = H**2 * sources[problem.equation.name][1:-1, 1:-1, 1:-1]
    for axis in range(3):
        for inner, edge in ((0, 0), (-1, -1)):
            b[(slice(None),) * axis + (inner,)] += np.moveaxis(field, axis, 0)[edge][1:-1, 1:-1]
    solution = scipy.sparse.linalg.spsolve(scipy.sparse.csc_array(matrix), b.ravel())
    field[1:-1, 1:-1, 1:-1] = solution.reshape(b.shape)
    return field


@pytest.mark.parametrize("equation", CASES)
@pytest.mark.parametrize(("cells", "m_"), [((16, 16, 16), 8), ((12, 8, 20), 8), ((9, 6, 12), 6)])
def test_the_iteration_ends_at_the_discrete_solution(equation, cells, m_):
    """Also where an axis has one subdomain, and where the last lattice cell is half of a tile."""
    problem = box(cells, equation)
    solution = m.solve(problem, Exact(2 * m_), rtol=1e-14)
    expected = factorised(problem)
    assert solution.report["subdomains"] == math.prod(2 * n // m_ - 1 for n in cells)
    np.testing.assert_allclose(solution.field, expected, rtol=0, atol=1e-13 * abs(expected).max())
    assert solution.report["discrete_residual"] < 1e-13


def test_iterations_do_not_grow_with_the_box():
    """By cubes of 8 cells, from 3 to 15 of them along each axis."""
    counts = [m.solve(box((n,) * 3), Exact(16), rtol=1e-8).iterations for n in (16, 32, 64)]
    assert max(counts) <= 13
    assert counts[2] <= counts[1] + 1


def test_eight_phases_end_at_the_same_field():
    problem = box((16, 16, 24), "poisson")
    settings = SolveSettings(levels=1, sweep="phases", rtol=1e-12, max_iterations=400)
    solution = m.solve(problem, Exact(16), settings=settings)
    np.testing.assert_allclose(solution.field, factorised(problem), rtol=0, atol=1e-9)


def test_an_interface_alone_is_kept_and_a_certificate_is_given():
    problem = box((16, 24, 16))
    with m.Solver(problem, Exact(16), keep="interface") as solver:
        assert solver(problem).converged
    certified = m.solve(problem, Exact(16), settings=SolveSettings(certify=1e-9))
    assert certified.report["certificate"] is not None
    assert certified.report["discrete_residual"] <= 1e-9
    by_multigrid = m.solve(problem, settings=SolveSettings(certify=1e-9))
    assert by_multigrid.report["discrete_residual"] <= 1e-9


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_no_more_than_two_interfaces_are_held(comm, common_path, monkeypatch):
    """With a certificate of a network's answer, an estimate and a field that is written."""
    held, most, begin = [], [], Interface.__init__

    def count(self, block, **options):
        begin(self, block, **options)
        held.append(weakref.ref(self.flat))
        flats = [flat for ref in held if (flat := ref()) is not None]
        most.append(sum(flat.numel() >= smallest for flat in flats))

    problem, cells = box((24, 32, 40)), 8
    lattice = Lattice(problem.domain.grid(), Subdomain(2 * cells, 2 * cells * H, 3))
    smallest = 0.1 * lattice.unknowns  # of a block; those of the coarse space are smaller
    monkeypatch.setattr(Interface, "__init__", count)
    settings = SolveSettings(certify=1e-7)
    solution = m.solve(
        problem, "laplace-cubes", ranks=comm, settings=settings, output=common_path / "box.h5"
    )
    assert solution.status == "converged_rtol"
    assert max(most) == 2


def test_what_does_not_lie_on_the_lattice_goes_by_multigrid():
    """By default all boxes do; by name those of other numbers of cells, of media and with natural sides."""
    assert m.solve(box((16, 16, 16))).report["accelerate"] != "chebyshev"
    for cells in ((16, 16, 17), (16, 4, 16)):
        solution = m.solve(box(cells), Exact(16), rtol=1e-12)
        np.testing.assert_allclose(solution.field, factorised(box(cells)), rtol=0, atol=1e-9)


@pytest.mark.ranks(2, 3, 4, 6, 8)
@pytest.mark.parametrize("equation", ["laplace", "screened-poisson"])
def test_any_number_of_ranks_gives_the_same_field(equation, comm, known_by_one):
    problem = box((12, 20, 16), equation)
    dims = {3: (1, 3, 1), 6: (1, 2, 3)}.get(comm.size)
    alone = known_by_one(m.solve, problem, Exact(16), rtol=1e-13)
    for given in {None, dims}:
        settings = SolveSettings(rtol=1e-13, dims=given)
        together = m.solve(problem, Exact(16), ranks=comm, settings=settings)
        assert together.iterations == alone.iterations
        field = together.gather()
        np.testing.assert_allclose(field, alone.field, rtol=0, atol=1e-12 * abs(field).max())


@pytest.mark.ranks(2, 4, 8)
def test_an_iteration_takes_one_exchange(comm, monkeypatch):
    exchanges, start = [], HaloExchange.start
    monkeypatch.setattr(
        HaloExchange, "start", lambda self, arrays: (exchanges.append(self), start(self, arrays))
    )
    solution = m.solve(box((16, 16, 16)), Exact(16), ranks=comm, rtol=1e-8)
    # That of the estimate comes on top.
    assert len(exchanges) == solution.iterations + 1
