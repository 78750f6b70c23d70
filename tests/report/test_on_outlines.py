"""Where an outline runs through nodes: they have values in files, comparisons and pictures as all others have."""

import h5py
import numpy as np
import pytest

import mosaicdd as m

H = 1 / 32


def _bar():
    voxels = np.zeros((32, 16, 16), bool)
    voxels[:, 5:11, 5:11] = True
    return m.Domain.from_mask(voxels, 1 / 16), {"back": m.Dirichlet(0.0), "front": m.Dirichlet(1.0)}


def _plate():
    voxels = np.zeros((32, 16, 16), bool)
    voxels[:, :, 3] = True
    return m.Domain.from_mask(voxels, 1 / 16), {"back": m.Dirichlet(0.0), "front": m.Dirichlet(1.0)}


def _cells():
    cells = np.ones((32, 32), bool)
    cells[10:22, 8:24] = False
    return m.Domain.from_mask(cells, H, per_cell=True), {"left": m.Dirichlet(0.0)}


def _nodes():
    nodes = np.ones((33, 33), bool)
    nodes[12:22, 8:24] = False
    return m.Domain.from_mask(nodes, H), {"left": m.Dirichlet(0.0)}


def _half():
    """Whose outline runs along a grid line, and into the sides."""
    return m.Domain.from_distance("x - 0.5", (32, 32), H), {"left": m.Dirichlet(0.0)}


def _ring():
    return m.Domain.from_distance(
        "maximum(hypot(x - 0.5, y - 0.5) - 0.45, 0.2 - hypot(x - 0.5, y - 0.5))", (32, 32), H
    ), {}


def _clipped():
    """Whose distance is zero everywhere outside, where there are no values."""
    disk = lambda x, y: np.minimum(np.hypot(x - 0.5, y - 0.5) - 0.4, 0.0)
    return m.Domain.from_distance(disk, (32, 32), H), {}


def _polygon():
    corners = [(0.125, 0.125), (0.875, 0.125), (0.875, 0.5), (0.5, 0.875), (0.125, 0.875)]
    return m.Domain.from_polygons(corners, cells=(32, 32), spacing=H), {}


# By name: how many nodes have values, where the outline is natural and where it has values.
COUNTS = {
    "bar": (_bar, 33 * 49, 33 * 49),
    "plate": (_plate, 33 * 17 * 2, None),
    "cells": (_cells, 33 * 33 - 11 * 15, 33 * 33 - 11 * 15),
    "nodes": (_nodes, 33 * 33 - 10 * 16, 33 * 33 - 10 * 16),
    "half": (_half, 33 * 17, 33 * 17),
    "ring": (_ring, None, None),
    "clipped": (_clipped, None, None),
    "polygon": (_polygon, 25 * 25 - 78, 25 * 25 - 78),
}
CASES = [
    pytest.param(name, kind, id=f"{name}-{kind}")
    for name in COUNTS
    for kind in ("natural", "given")
    if (name, kind) not in {("plate", "given"), ("ring", "natural"), ("clipped", "natural")}
]


def problem_of(name, kind):
    make, natural, given = COUNTS[name]
    domain, sides = make()
    outline = m.Dirichlet(1.0) if kind == "given" else m.Neumann(0.0)
    sides = {**({} if name in ("ring", "clipped") else sides), "outline": outline}
    if name == "polygon" and kind == "natural":
        sides["outline"] = m.Robin(1.0, 1.0)
    every = {"left": m.Neumann(0.0), "right": m.Neumann(0.0), "bottom": m.Neumann(0.0), "top": m.Neumann(0.0)}  # fmt: skip
    every = {} if name in ("polygon", "ring", "clipped") else every
    return domain, every | sides, given if kind == "given" else natural


def reported(solution, comm=None):
    """Check that a comparison reports what is put in at each node that has a value, and nothing else."""
    field = np.asarray(solution.gather() if hasattr(solution, "gather") else solution.field)
    there = np.argwhere(np.isfinite(field))
    rng = np.random.default_rng(0)
    off = np.where(np.isfinite(field), rng.uniform(0.1, 1.0, field.shape), 7.0)
    known = off[np.isfinite(field)]
    for number in range(0, len(there), 31 if comm is None else 301):
        node = tuple(there[number])
        wrong = np.where(np.isfinite(field), field, 0.0)
        wrong[node] += off[node]
        found = m.compare(solution, wrong)
        assert found.max_error == pytest.approx(off[node])
        assert found.mae == pytest.approx(off[node] / len(there))
    found = m.compare(solution, np.where(np.isfinite(field), field, 0.0) + off)
    assert found.max_error == pytest.approx(known.max())
    assert found.mae == pytest.approx(known.mean())
    assert found.difference_norm == pytest.approx(np.linalg.norm(known))
    return len(there)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_comparison_reports_what_is_wrong_at_every_node_with_a_value(name, kind, tmp_path):
    domain, sides, count = problem_of(name, kind)
    solution = m.solve(m.Problem(domain, "diffusion", {"f": 1.0}, sides))
    assert solution.converged
    nodes = reported(solution)
    assert count in (None, nodes)
    solution.save(tmp_path / "out.h5")
    stored = m.read(tmp_path / "out.h5")
    assert reported(stored) == nodes
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_array_equal(file["active"], np.isfinite(solution.field))


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize(("name", "kind"), CASES[::4])
def test_ranks_compare_alike(name, kind, comm):
    domain, sides, _ = problem_of(name, kind)
    reported(m.solve(m.Problem(domain, "diffusion", {"f": 1.0}, sides), ranks=comm), comm)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("shards", [False, True])
def test_a_series_has_values_where_a_solution_has(name, kind, shards, comm, common_path):
    domain, sides, _ = problem_of(name, kind)
    problem = m.Problem(domain, "heat", {"f": 1.0}, sides)
    path = common_path / "out.h5"
    series = m.march(problem, 0.5, dt=0.1, steps=2, ranks=comm)
    series.save(path, shards=shards)
    comm.Barrier()
    steady = m.solve(m.Problem(domain, "diffusion", {"f": 1.0}, sides))
    there = np.isfinite(steady.field)
    for number in range(len(series.times)):
        np.testing.assert_array_equal(np.isfinite(series.gather(number)), there)
    stored = m.read(path)
    np.testing.assert_array_equal(stored.inside, there)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["active"], there)
    wrong = np.where(there, stored.field, 0.0)
    wrong[tuple(np.argwhere(there)[0])] += 0.5
    assert m.compare(stored, wrong).max_error == pytest.approx(0.5)


@pytest.mark.parametrize("seen", [(slice(3, 24), slice(2, 17)), (slice(0, 12), slice(0, 33))])
def test_a_window_is_compared_at_its_own_nodes(seen):
    domain, sides, _ = problem_of("cells", "natural")
    problem = m.Problem(domain, "diffusion", {"f": 1.0}, sides)
    whole = m.solve(problem).field
    ends = {name: (s.start * H, (s.stop - 1) * H) for name, s in zip("yx", seen, strict=True)}
    window = m.solve(problem, window=ends)
    np.testing.assert_allclose(window.field, whole[seen], rtol=0, atol=1e-6)
    reported(window)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_picture_says_the_largest_difference_and_where(name, kind):
    pytest.importorskip("matplotlib")
    domain, sides, _ = problem_of(name, kind)
    solution = m.solve(m.Problem(domain, "diffusion", {"f": 1.0}, sides))
    field, axes = solution.field, solution.field.ndim
    level = domain.shape.level(domain.grid(), tuple(slice(0, n) for n in domain.grid().nodes))
    there = np.isfinite(field)
    node = tuple(np.argwhere(there & ((level == 0) | ~(there & (level == 0)).any()))[0])
    wrong = np.where(there, field, 0.0)
    wrong[node] += 0.5
    planes = [("z", float(solution.z[node[0]]))] if axes == 3 else []
    drawing = solution.plot(reference=wrong, planes=planes)
    place = ", ".join(f"{solution.coordinates(axis)[node[axis]]:.7g}" for axis in reversed(range(axes)))  # fmt: skip
    if axes == 3:
        assert drawing.get_suptitle().endswith(f"largest difference 5.0e-01 at ({place})")
    (panel,) = (a for a in drawing.axes if a.get_title().startswith("absolute difference"))
    assert "largest 5.0e-01, mean" in panel.get_title()
    (peak,) = panel.lines
    x, y = (solution.coordinates(axis)[node[axis]] for axis in (-1, -2))
    assert (peak.get_xdata()[0], peak.get_ydata()[0]) == (x, y)


def test_a_plane_without_values_says_so():
    pytest.importorskip("matplotlib")
    domain, sides = _plate()
    solution = m.solve(m.Problem(domain, "diffusion", {"f": 1.0}, sides | {"outline": m.Neumann(0.0)}))  # fmt: skip
    drawing = solution.plot(reference=np.zeros(solution.field.shape), planes=[("x", 0.0)])
    assert any(a.get_title().endswith("no values") for a in drawing.axes)


def test_a_small_error_beside_an_outline_is_seen_in_a_large_picture():
    """Of a block of nodes that the outline cuts, the largest difference is drawn."""
    pytest.importorskip("matplotlib")
    cells = 1000
    domain = m.Domain.from_distance(f"x - {cells // 2}", (cells, cells), 1.0)
    problem = m.Problem(domain, "laplace", None, {"left": m.Dirichlet(1.0), "outline": m.Dirichlet(1.0), "bottom": m.Neumann(0.0), "top": m.Neumann(0.0)})  # fmt: skip
    solution = m.solve(problem)
    wrong = np.where(np.isfinite(solution.field), solution.field, 0.0)
    wrong[:, cells // 2] += 0.5
    drawing = solution.plot(reference=wrong)
    (panel,) = (a for a in drawing.axes if a.get_title().startswith("absolute difference"))
    shown = np.asarray(panel.images[0].get_array())
    assert len(shown) < cells
    assert (np.nanmax(shown, axis=1) >= 0.5 - 1e-6).all()


def test_what_is_not_finite_inside_counts():
    """A mean, a largest value and a comparison of a field that is NaN at a node with a value are NaN."""
    domain, sides, _ = problem_of("cells", "natural")
    solution = m.solve(m.Problem(domain, "diffusion", {"f": 1.0}, sides))
    solution._field[0, 2, 3] = np.nan
    assert np.isnan([solution.mean(), solution.max().value, solution.min().value]).all()
    assert solution.max().place == (3 * H, 2 * H)
    assert np.isnan(m.compare(solution, np.zeros((33, 33))).max_error)
    assert np.isnan(solution.at([[3 * H, 2 * H]])).all()
