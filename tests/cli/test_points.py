"""``solve --points``: the solution anywhere, by the network, or interpolated."""

import codecs
import itertools
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest
import torch
from scipy.interpolate import RegularGridInterpolator

import mosaicdd as m
from mosaicdd.schwarz.local_solvers.loading import find_local_solver

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
H = 0.5 / 32
CELLS = (128, 192)
NODES, SIZE = (129, 193), (2.0, 3.0)
SOLVE = "solve -o out.h5 --cells 192x128"


def in_file(path, *names):
    with h5py.File(path) as file:
        return [file[name][()] for name in names]


@pytest.fixture
def solve(succeed, write, common_path, comm):
    """Return a function that solves for points and returns the values there."""

    def run(points, words, name="points.npy"):
        write(name, points)
        succeed(f"{SOLVE} --points {name} {words}")
        stored, values = in_file(common_path / "out.h5", "points", "values")
        if not isinstance(points, str):
            np.testing.assert_array_equal(stored, points)
        comm.Barrier()
        return values

    return run


ON_DIAGONALS = np.subtract.outer(*map(np.arange, NODES)) % 8 == 0


def nodes_on_diagonals():
    """Return grid nodes as rows x y, bottom row first: an eighth, on edges, lattice lines and in all rows between."""
    y, x = np.meshgrid(*(np.arange(n) * H for n in NODES), indexing="ij")
    return np.stack([x[ON_DIAGONALS], y[ON_DIAGONALS]], axis=1)


def between_nodes():
    """Return points anywhere in the domain, on its edge and on lattice lines, too."""
    points = np.random.default_rng(0).uniform((0.0, 0.0), SIZE[::-1], (2000, 2))
    points[:50, 0], points[50:100, 1] = 0.0, SIZE[0]
    points[100:150, 0] = 1.25  # a lattice line
    return points


@RANKS
@pytest.mark.parametrize("solver", ["laplace", "laplace-sdnet"])
def test_at_grid_nodes_the_values_are_blended_from_the_subdomains_around(
    solver, solve, by_one, common_path
):
    how = f"--local-solver {solver} --keep interface"
    values = solve(nodes_on_diagonals(), f"{how} --boundary gp:seed=1,noise=0.05")
    lines = in_file(common_path / "out.h5", "lines/0", "lines/1")
    # Products in another order: units in the last place of values of order 1.
    blended = by_one(blend_of_all_subdomains, find_local_solver(solver).as_trained(), *lines)
    np.testing.assert_allclose(values, blended[ON_DIAGONALS], rtol=0, atol=1e-12)


def blend_of_all_subdomains(network, rows, columns):
    """Predict diagonals from every subdomain; add up with hats, which are 1 towards the edge."""
    s, subdomain = 16, network.subdomain
    nodes = subdomain.interior[np.subtract(*subdomain.interior.T) % 8 == 0]
    given = np.full(NODES, np.nan)
    given[::s], given[:, ::s] = rows, columns.T
    corners = list(itertools.product(*(range(0, cells - s, s) for cells in CELLS)))
    y, x = subdomain.perimeter.T
    perimeters = torch.from_numpy(np.stack([given[r + y, c + x] for r, c in corners]))
    values = torch.empty(len(corners), len(nodes), dtype=torch.float64)
    kind = {"device": torch.device("cpu"), "dtype": torch.float64}
    network.plan(nodes, **kind)(perimeters, values)
    blended, t = np.zeros(NODES), np.arange(1, 2 * s)
    for (row, column), predicted in zip(corners, values.numpy(), strict=True):
        hats = []
        for corner, cells in zip((row, column), CELLS, strict=True):
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
    how = f"--local-solver {solver} --rtol 1e-13"
    values = solve(points, f"{how} --boundary expr:x*x-y*y+3*x*y-x+1")
    error = np.abs(values - (x * x - y * y + 3 * x * y - x + 1))
    inner = (x > 0) & (y < SIZE[0])
    # Harmonic polynomials up to degree 2 leave no remainder for the network, and values up to 26.
    assert error[inner].max() <= 26 * 1e-12
    # On the edge the data are interpolated linearly: h^2/8 of a second derivative of 2.
    assert 0.5 * H**2 / 8 < error[~inner].max() <= 2 * H**2 / 8 * (1 + 1e-9)


@RANKS
def test_between_the_nodes_a_smooth_solution_is_about_as_good_as_interpolated(solve, common_path):
    points = between_nodes()
    x, y = points.T
    values = solve(points, "--boundary 'expr:exp(x)*cos(y)/20'")
    error = np.abs(values - np.exp(x) * np.cos(y) / 20)
    # Bilinear interpolation: h^2/8 (|u_xx| + |u_yy|), both up to exp(3)/20. A network that has seen
    # nodes only is that good at most points, not where it folds the square.
    bilinear = 2 * np.exp(3) / 20 * H**2 / 8
    assert np.sqrt((error**2).mean()) <= bilinear
    assert np.quantile(error, 0.99) <= bilinear
    # They need no field, and may be a text.
    text = "# x y\n" + "\n".join(f"{a:.17g} {b:.17g}" for a, b in points)
    how = "--boundary 'expr:exp(x)*cos(y)/20' --keep interface"
    np.testing.assert_array_equal(solve(text, how, "points.txt"), values)
    with h5py.File(common_path / "out.h5") as file:
        assert "solution" not in file


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("solver", ["laplace", "laplace-sdnet"])
def test_ranks_do_not_change_the_values(solver, solve, by_one, common_path, comm):
    words = f"--local-solver {solver} --boundary gp:seed=1"
    values = solve(between_nodes(), words)
    turned = solve(between_nodes(), f"{words} --dims 1x{comm.size}")
    alone = f"-m mosaicdd.cli.main {SOLVE} --points points.npy {words}".split()
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("PMI")}
    start = {"cwd": common_path, "env": environment}
    by_one(lambda: subprocess.run([sys.executable, *alone], check=True, **start).returncode)
    # Ranks add up in another order: units in the last place of values of order 1, per iteration.
    for other in (turned, *in_file(common_path / "out.h5", "values")):
        np.testing.assert_allclose(values, other, rtol=0, atol=1e-12)


@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize(
    "how",
    [
        "--local-solver exact",
        "--out-of-range exact",
        "--certify 1e-6",
        "--pde poisson --field f=1",
        "--side left=neumann:1",
        "--pde quasilinear-diffusion --field k=expr:1+u**2",
    ],
)
def test_what_is_known_at_nodes_only_is_interpolated_from_the_field(how, solve, common_path, comm):
    points = between_nodes()
    values = solve(points, f"--boundary expr:x*x-y {how}")
    field = m.read(common_path / "out.h5").field
    linear = RegularGridInterpolator([np.arange(n) * H for n in NODES], field)(points[:, ::-1])
    np.testing.assert_allclose(values, linear, rtol=0, atol=1e-13 * np.ptp(field))
    comm.Barrier()


@RANKS
def test_beyond_an_outline_and_beside_it_values_are_those_of_the_library(solve, common_path, comm):
    points = between_nodes()
    disk = "--domain 'expr:hypot(x-1.5,y-1)-0.7' --pde poisson --field f=1 --boundary 0"
    values = solve(points, disk)
    at_points = m.read(common_path / "out.h5").at(points)
    np.testing.assert_allclose(values, at_points, rtol=0, atol=1e-14)
    inside = np.hypot(points[:, 0] - 1.5, points[:, 1] - 1) < 0.7 - H
    assert np.isfinite(values[inside]).all()
    assert np.isnan(values[np.hypot(points[:, 0] - 1.5, points[:, 1] - 1) > 0.7 + H]).all()
    comm.Barrier()


def test_texts_that_begin_with_a_mark_of_the_byte_order_are_read(succeed, tmp_path):
    texts = {
        "run.toml": 'boundary = "expr:x"\n',
        "points.csv": "0.1,0.2\n",
        "domain.json": '{"outer": [[0, 0], [0.5, 0], [0.5, 0.5], [0, 0.5]]}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(codecs.BOM_UTF8 + text.encode())
    more = "--config run.toml --points points.csv --domain domain.json"
    succeed(f"solve --cells 32x32 -o out.h5 {more}")
