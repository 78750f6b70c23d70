"""``solve --points``: the solution anywhere, by the network, or interpolated."""

import codecs
import itertools

import h5py
import numpy as np
import pytest
import torch
from scipy.interpolate import RegularGridInterpolator

import mosaicdd as m
from mosaicdd.grid.partition import Partition
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.points import on_grid
from mosaicdd.local_solvers.loading import find_local_solver
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.settings import SolveSettings

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
H = 0.5 / 32
GRID = Grid((128, 192), H)
CELLS = ("--cells", "192x128")


@pytest.fixture
def solve(mosaicdd, common_path, comm):
    """Return a function that solves for points: the path, and the values there."""

    def run(points, *arguments, write=np.save, name="points.npy"):
        file, path = common_path / name, common_path / "out.h5"
        if comm.rank == 0:
            write(file, points)
        comm.Barrier()
        ended = mosaicdd("solve", "-o", path, *CELLS, "--points", file, "--json", *arguments)
        assert (ended.code, ended.err) == (0, "")
        with h5py.File(path) as stored:
            np.testing.assert_array_equal(stored["points"][()], points)
            values = stored["values"][()]
        comm.Barrier()
        return path, values

    return run


ON_DIAGONALS = np.subtract.outer(*map(np.arange, GRID.nodes)) % 8 == 0


def nodes_on_diagonals():
    """Return grid nodes as rows x y, bottom row first: an eighth, on edges, lattice lines and in all rows between."""
    y, x = np.meshgrid(*(np.arange(n) * H for n in GRID.nodes), indexing="ij")
    return np.stack([x[ON_DIAGONALS], y[ON_DIAGONALS]], axis=1)


def between_nodes():
    """Return points anywhere in the domain, on its edge and on lattice lines, too."""
    points = np.random.default_rng(0).uniform((0.0, 0.0), GRID.size[::-1], (2000, 2))
    points[:50, 0], points[50:100, 1] = 0.0, GRID.size[0]
    points[100:150, 0] = 1.25  # a lattice line
    return points


@RANKS
@pytest.mark.parametrize("solver", ["laplace", "laplace-sdnet"])
def test_at_grid_nodes_the_values_are_blended_from_the_subdomains_around(solver, solve, by_one):
    path, values = solve(
        nodes_on_diagonals(),
        "--keep",
        "interface",
        "--local-solver",
        solver,
        "--boundary",
        "gp:seed=1,noise=0.05",
    )
    with h5py.File(path) as file:
        rows, columns = file["lines/0"][()], file["lines/1"][()]
    # Products in another order: units in the last place of values of order 1.
    network = find_local_solver(solver).as_trained()
    blended = by_one(blend_of_all_subdomains, network, rows, columns)
    np.testing.assert_allclose(values, blended[ON_DIAGONALS], rtol=0, atol=1e-12)


def blend_of_all_subdomains(network, rows, columns):
    """Predict diagonals from every subdomain; add up with hats, which are 1 towards the edge."""
    s, subdomain = 16, network.subdomain
    nodes = subdomain.interior[np.subtract(*subdomain.interior.T) % 8 == 0]
    given = np.full(GRID.nodes, np.nan)
    given[::s], given[:, ::s] = rows, columns.T
    corners = list(itertools.product(*(range(0, cells - s, s) for cells in GRID.shape)))
    y, x = subdomain.perimeter.T
    perimeters = torch.from_numpy(np.stack([given[r + y, c + x] for r, c in corners]))
    values = torch.empty(len(corners), len(nodes), dtype=torch.float64)
    kind = {"device": torch.device("cpu"), "dtype": torch.float64}
    network.plan(nodes, **kind)(perimeters, values)
    blended, t = np.zeros(GRID.nodes), np.arange(1, 2 * s)
    for (row, column), predicted in zip(corners, values.numpy(), strict=True):
        hats = []
        for corner, cells in zip((row, column), GRID.shape, strict=True):
            alone = ((corner == 0) & (t < s)) | ((corner + 2 * s == cells) & (t > s))
            hats.append(np.where(alone, 1.0, 1.0 - np.abs(t - s) / s))
        y, x = nodes.T
        blended[row + y, column + x] += np.outer(*hats)[y - 1, x - 1] * predicted
    for edge in np.s_[0, :], np.s_[-1, :], np.s_[:, 0], np.s_[:, -1]:
        blended[edge] = given[edge]
    return blended


@RANKS
@pytest.mark.parametrize("solver", ["laplace", "laplace-sdnet"])
def test_what_the_lifting_knows_is_exact_at_any_point(solver, solve):
    points = between_nodes()
    x, y = points.T
    arguments = ("--local-solver", solver, "--rtol", "1e-13")
    _, values = solve(points, *arguments, "--boundary", "expr:x*x-y*y+3*x*y-x+1")
    error = np.abs(values - (x * x - y * y + 3 * x * y - x + 1))
    inner = (x > 0) & (y < GRID.size[0])
    # Harmonic polynomials up to degree 2 leave no remainder for the network, and values up to 26.
    assert error[inner].max() <= 26 * 1e-12
    # On the edge the data are interpolated linearly: h^2/8 of a second derivative of 2.
    assert 0.5 * H**2 / 8 < error[~inner].max() <= 2 * H**2 / 8 * (1 + 1e-9)


@RANKS
def test_between_the_nodes_a_smooth_solution_is_about_as_good_as_interpolated(solve):
    points = between_nodes()
    x, y = points.T
    _, values = solve(points, "--boundary", "expr:exp(x)*cos(y)/20")
    error = np.abs(values - np.exp(x) * np.cos(y) / 20)
    # Bilinear interpolation: h^2/8 (|u_xx| + |u_yy|), both up to exp(3)/20. A network that has seen
    # nodes only is that good at most points, not where it folds the square.
    bilinear = 2 * np.exp(3) / 20 * H**2 / 8
    assert np.sqrt((error**2).mean()) <= bilinear
    assert np.quantile(error, 0.99) <= bilinear


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("solver", ["laplace", "laplace-sdnet"])
def test_ranks_do_not_change_the_values(solver, solve, make_ranks, comm):
    points = between_nodes()
    arguments = ("--local-solver", solver, "--boundary", "gp:seed=1")
    _, values = solve(points, *arguments)
    _, turned = solve(points, *arguments, "--dims", f"1x{comm.size}")
    # Ranks add up in another order: units in the last place of values of order 1, per iteration.
    np.testing.assert_allclose(values, turned, rtol=0, atol=1e-12)
    serial = comm.bcast(_alone(points, solver, make_ranks) if comm.rank == 0 else None)
    np.testing.assert_allclose(values, serial, rtol=0, atol=1e-12)


def _alone(points, solver, make_ranks):
    """Solve on this rank alone."""
    network = find_local_solver(solver).as_trained()
    settings = SolveSettings(rtol=1e-7)
    lattice = Lattice(GRID, network.subdomain)
    alone = Engine(
        Partition(
            network.boxes(lattice.grid, (False,) * len(lattice.cells)), make_ranks(alone=True)
        ),
        network,
        settings,
    )
    boundary = Boundary.of_gaussian_process(GRID, seed=1)
    evaluate = alone.plan_points(on_grid(points, GRID))
    return evaluate(alone.solve(boundary).interface, [boundary])[0]


@RANKS
def test_points_need_no_field(solve, comm):
    path, values = solve(between_nodes(), "--keep", "interface")
    with h5py.File(path) as file:
        assert "solution" not in file
    comm.Barrier()
    _, with_field = solve(between_nodes())
    np.testing.assert_array_equal(values, with_field)


def test_points_can_be_a_text(solve):
    def write(file, points):
        np.savetxt(file, points, header="x y", fmt="%.17g")

    _, values = solve(between_nodes(), write=write, name="points.txt")
    np.testing.assert_array_equal(values, solve(between_nodes())[1])


@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize(
    "how",
    [
        ("--local-solver", "exact"),
        ("--out-of-range", "exact"),
        ("--certify", "1e-6"),
        ("--pde", "poisson", "--field", "f=1"),
        ("--side", "left=neumann:1"),
        ("--pde", "quasilinear-diffusion", "--field", "k=expr:1+u**2"),
    ],
    ids=" ".join,
)
def test_what_is_known_at_nodes_only_is_interpolated_from_the_field(how, solve, comm):
    points = between_nodes()
    path, values = solve(points, "--boundary", "expr:x*x-y", *how)
    with h5py.File(path) as file:
        field = file["solution"][()]
    nodes = [np.arange(n) * H for n in GRID.nodes]
    linear = RegularGridInterpolator(nodes, field)(points[:, ::-1])
    np.testing.assert_allclose(values, linear, rtol=0, atol=1e-13 * np.ptp(field))
    comm.Barrier()


@RANKS
def test_beyond_an_outline_and_beside_it_values_are_those_of_the_library(solve, comm):
    points = between_nodes()
    disk = ("--domain", "expr:hypot(x-1.5,y-1)-0.7", "--pde", "poisson", "--field", "f=1")
    path, values = solve(points, "--boundary", "0", *disk)
    np.testing.assert_allclose(values, m.read(path).at(points), rtol=0, atol=1e-14)
    inside = np.hypot(points[:, 0] - 1.5, points[:, 1] - 1) < 0.7 - H
    assert np.isfinite(values[inside]).all()
    assert np.isnan(values[np.hypot(points[:, 0] - 1.5, points[:, 1] - 1) > 0.7 + H]).all()
    comm.Barrier()


@pytest.mark.ranks(1)
def test_texts_that_begin_with_a_mark_of_the_byte_order_are_read(mosaicdd, tmp_path):
    texts = {
        "run.toml": 'boundary = "expr:x"\n',
        "points.csv": "0.1,0.2\n",
        "domain.json": '{"outer": [[0, 0], [0.5, 0], [0.5, 0.5], [0, 0.5]]}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(codecs.BOM_UTF8 + text.encode())
    config, points, domain = (tmp_path / name for name in texts)
    cells = "--cells", "32x32", "-o", tmp_path / "out.h5"
    ended = mosaicdd("solve", *cells, "--config", config, "--points", points, "--domain", domain)
    assert (ended.code, ended.err) == (0, "")
