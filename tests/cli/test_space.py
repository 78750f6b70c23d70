"""Boxes on the command line: what a solve writes, on any number of ranks, and what is said of bad input."""

import tomllib

import h5py
import numpy as np
import pytest
from PIL import Image
from scipy.interpolate import RegularGridInterpolator

import mosaicdd as m
from mosaicdd.report.stored import StoredSolution

CELLS = (16, 20, 24)  # (nz, ny, nx)
SOLVE = ("solve", "--cells", "24x20x16", "--spacing", "0.05", "--rtol", "1e-12")
FIELDS = ("--pde", "diffusion", "--field", "a=expr:1 + x + 2*y*z", "--field", "f=1")
SIDES = ("--boundary", "expr:x + y*z", "--side", "back=neumann:0.5", "--side", "top=robin:2,expr:x*z")  # fmt: skip
SIDES += ("--side", "left[0.2:0.72, :0.4]=neumann:expr:y")
# Both have converged to 1e-12 of values of order 1, by iterations whose sums go another way round.
CLOSE = 2e-11


def solved():
    """Return what the library gives for the same."""
    sides = {"back": m.Neumann(0.5), "top": m.Robin(2.0, "x*z")}
    sides |= {"left[0.2:0.72, :0.4]": m.Neumann("y")}
    others = dict.fromkeys(["left", "right", "bottom", "front"], m.Dirichlet("x + y*z"))
    fields = {"a": "1 + x + 2*y*z", "f": 1.0}
    problem = m.Problem(m.Domain(CELLS, 0.05), "diffusion", fields, sides | others)
    return m.solve(problem, rtol=1e-12).field


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("how", ["whole", "window", "shards"])
def test_the_file_holds_the_library_s_field(how, mosaicdd, common_path, comm, by_one):
    place = (slice(None),) * 3
    more = {"whole": (), "window": ("--window", "0.1:0.3,0:0.92,0.33:0.5"), "shards": ("--shards",)}
    ended = mosaicdd(*SOLVE, *FIELDS, *SIDES, "-o", common_path / "out.h5", *more[how])
    assert ended.code == 0, ended.err
    whole = by_one(solved)
    if how == "window":
        place = slice(6, 11), slice(0, 20), slice(2, 7)
    stored = m.read(common_path / "out.h5")
    np.testing.assert_allclose(stored.field, whole[place], rtol=0, atol=CLOSE)
    assert stored.grid.shape == CELLS
    assert stored.window.start == tuple(p.start or 0 for p in place)
    np.testing.assert_allclose(stored.coordinates(0)[0], 0.05 * stored.window.start[0])
    comm.Barrier()


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("solver", ["multigrid", "exact"])
def test_values_at_points_are_those_between_the_nodes(solver, mosaicdd, common_path, comm):
    points, path = common_path / "points.txt", common_path / "out.h5"
    places = np.random.default_rng(0).uniform(0, 0.8, (200, 3))
    places[:9, 0], places[9:20, 2], places[20:30, 1] = 1.2, 0.0, 0.35
    if comm.rank == 0:
        np.savetxt(points, places, fmt="%.17g")
    comm.Barrier()
    how = (*SOLVE, *FIELDS, *SIDES)
    if solver != "multigrid":
        how = ("solve", "--cells", "32x16x24", "--spacing", "0.05", "--local-solver", solver)
        how = (*how, "--boundary", "expr:x + y*z")
    ended = mosaicdd(*how, "-o", path, "--points", points)
    assert ended.code == 0, ended.err
    with h5py.File(path) as file:
        field, values = file["solution"][()], file["values"][()]
        np.testing.assert_array_equal(file["points"][()], places)
    nodes = [0.05 * np.arange(n) for n in field.shape]
    linear = RegularGridInterpolator(nodes, field)(places[:, ::-1])
    np.testing.assert_allclose(values, linear, rtol=0, atol=1e-13)
    np.testing.assert_allclose(m.read(path).at(places), linear, rtol=0, atol=1e-13)
    comm.Barrier()


@pytest.mark.ranks(1, 2, 4)
def test_values_at_points_of_a_mask_of_voxels_are_nan_outside(mosaicdd, common_path, comm):
    voxels, path = np.ones(CELLS, bool), common_path / "out.h5"
    voxels[:, 8:14, 9:20] = False
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 1, (300, 3)) * np.multiply(CELLS[::-1], 0.05)
    if comm.rank == 0:
        np.save(common_path / "part.npy", voxels)
        np.savetxt(common_path / "points.txt", places, fmt="%.17g")
    comm.Barrier()
    domain = ("--domain", common_path / "part.npy", "--boundary", "expr:x*x+y*z")
    more = ("--points", common_path / "points.txt", "--pde", "poisson", "--field", "f=1")
    ended = mosaicdd(*SOLVE, *domain, *more, "-o", path)
    assert ended.code == 0, ended.err
    with h5py.File(path) as file:
        values = file["values"][()]
    np.testing.assert_allclose(values, m.read(path).at(places), rtol=0, atol=1e-13)
    inside = voxels[tuple((places[:, ::-1] / 0.05).astype(int).T)]
    assert np.isfinite(values[inside]).all()
    assert np.isnan(values[~inside]).any()
    comm.Barrier()


@pytest.mark.ranks(4)
def test_a_process_grid_of_three_axes_is_taken_x_first(mosaicdd, common_path, strict_json):
    ended = mosaicdd(
        *SOLVE,
        *FIELDS,
        "--boundary",
        "0",
        "-o",
        common_path / "out.h5",
        "--dims",
        "2x2x1",
        "--json",
    )
    report = strict_json(ended.out)
    assert (report["dims"], report["grid"]) == ([2, 2, 1], [24, 20, 16])


def test_fields_and_sides_are_read_from_files(mosaicdd, tmp_path):
    rng = np.random.default_rng(0)
    voxels, f = np.where(rng.random(CELLS) < 0.3, 1e4, 1.0), rng.normal(size=(17, 21, 25))
    left = rng.normal(size=(17, 21))
    np.save(tmp_path / "a.npy", voxels)
    with h5py.File(tmp_path / "given.h5", "w") as file:
        file["f"], file["left"] = f, left
    ended = mosaicdd(
        *(*SOLVE, "--pde", "diffusion", "--boundary", "0", "-o", tmp_path / "out.h5"),
        *("--field", f"a={tmp_path / 'a.npy'}", "--field", f"f={tmp_path / 'given.h5'}:/f"),
        *("--side", f"left=dirichlet:{tmp_path / 'given.h5'}:/left"),
    )
    assert ended.code == 0, ended.err
    problem = m.Problem(
        m.Domain(CELLS, 0.05), "diffusion", {"a": voxels, "f": f}, {"left": m.Dirichlet(left)}
    )
    stored = m.read(tmp_path / "out.h5")
    field = m.solve(problem, rtol=1e-12).field
    np.testing.assert_allclose(stored.field, field, rtol=0, atol=CLOSE)
    # The file knows its problem, and is one of fields and sides of another.
    np.testing.assert_array_equal(stored.problem.fields["a"], voxels)
    again = m.solve(stored.problem, rtol=1e-12).field
    np.testing.assert_allclose(again, field, rtol=0, atol=CLOSE)


def test_a_solution_file_is_a_boundary_file(mosaicdd, tmp_path):
    first, second = tmp_path / "first.h5", tmp_path / "second.h5"
    assert mosaicdd(*SOLVE, "--boundary", "expr:x*y*z", "-o", first).code == 0
    assert mosaicdd(*SOLVE, "--boundary", first, "-o", second).code == 0
    np.testing.assert_array_equal(m.read(first).field, m.read(second).field)


@pytest.mark.ranks(1, 2, 3)
def test_a_solve_goes_on_from_its_checkpoint(mosaicdd, common_path, comm, by_one):
    path = common_path / "out.h5"
    arguments = (*SOLVE, *FIELDS, *SIDES, "-o", path)
    assert mosaicdd(*arguments, "--max-iterations", "5").code == 1
    assert path.with_suffix(".h5.checkpoint").exists()
    comm.Barrier()
    assert mosaicdd(*arguments, "--resume").code == 0
    stored = m.read(path)
    assert stored.attributes["iterations"] > 5
    np.testing.assert_allclose(stored.field, by_one(solved), rtol=0, atol=CLOSE)
    comm.Barrier()


def test_options_come_from_a_run_and_from_what_it_prints(mosaicdd, tmp_path):
    first, second = tmp_path / "first.h5", tmp_path / "second.h5"
    arguments = (*SOLVE, *FIELDS, *SIDES, "-o", first, "--window", "0:0.2,0:1,0:0.5")
    assert mosaicdd(*arguments).code == 0
    printed = mosaicdd(*arguments, "--print-config").out
    assert tomllib.loads(printed)["cells"] == "24x20x16"
    (tmp_path / "run.toml").write_text(printed)
    for config in (first, tmp_path / "run.toml"):
        assert mosaicdd("solve", "--config", config, "-o", second).code == 0
        np.testing.assert_array_equal(m.read(second).field, m.read(first).field)


@pytest.mark.parametrize("reference", ["pyamg", "direct", "dst", "expr:x*y*z"])
def test_references_agree(reference, mosaicdd, tmp_path, strict_json):
    """The discrete equation is exact for ``x y z``."""
    path = tmp_path / "out.h5"
    ended = mosaicdd(
        *SOLVE, "--pde", "poisson", "--field", "f=0", "--boundary", "expr:x*y*z", "-o", path
    )
    assert ended.code == 0, ended.err
    ended = mosaicdd("compare", path, "--reference", reference, "--json")
    assert strict_json(ended.out)["max_error"] < 1e-9  # of peers, which stop at 1e-10


def test_peers_agree_where_a_side_is_natural(mosaicdd, tmp_path, strict_json):
    path = tmp_path / "out.h5"
    assert mosaicdd(*SOLVE, *FIELDS, *SIDES, "-o", path).code == 0
    for reference in ("auto", "pyamg"):
        ended = mosaicdd("compare", path, "--reference", reference, "--json")
        assert strict_json(ended.out)["max_error"] < 1e-8


def parts():
    """Return a mask of a slab, and of a part beside it that nothing touches."""
    mask = np.zeros(CELLS, bool)
    mask[:4], mask[6:8, 5:7, 4:6] = True, True
    return mask


@pytest.mark.ranks(1, 2)
@pytest.mark.usefixtures("quick_layout")
def test_a_mask_of_voxels_makes_its_way_through_files(mosaicdd, common_path, comm, by_one):
    """From a stack of pictures, with a condition on a part of the faces, to a picture with the outside blank."""
    if comm.rank == 0:
        pictures = [Image.fromarray(plane[::-1]) for plane in parts()]
        pictures[0].save(common_path / "part.tif", save_all=True, append_images=pictures[1:])
        pictures[0].save(common_path / "short.tif", save_all=True, append_images=pictures[1:-1])
    comm.Barrier()
    shape = [
        "--pde",
        "poisson",
        "--field",
        "f=1",
        "--boundary",
        "expr:x",
        "--side",
        "outline=neumann:0",
    ]
    more = ("--side", "outline[(x >= 0.5) & (y/2 < 0.3)]=robin:2,expr:x*z", "--leave-out-floating")
    path = common_path / "out.h5"
    ended = mosaicdd(*SOLVE, *shape, *more, "--domain", common_path / "part.tif", "-o", path)
    assert ended.code == 0, ended.err
    if comm.rank == 0:
        assert "0.41% left out" in ended.out
    stored = m.read(path)
    np.testing.assert_array_equal(
        np.isnan(stored.field), np.arange(17)[:, None, None] + np.zeros((21, 25)) > 4
    )
    sides = dict.fromkeys(["left", "right", "bottom", "top", "back", "front"], m.Dirichlet("x"))
    sides |= {"outline": m.Neumann(0.0), "outline[(x >= 0.5) & (y/2 < 0.3)]": m.Robin(2.0, "x*z")}
    slab = m.Domain.from_mask(np.arange(16)[:, None, None] + np.zeros((20, 24)) < 4, 0.05)
    problem = m.Problem(slab, "poisson", {"f": 1.0}, sides)
    field = by_one(lambda: m.solve(problem, rtol=1e-12).field)
    np.testing.assert_allclose(stored.field, field, rtol=0, atol=CLOSE)
    # The file knows its problem, whose parts of outlines are in their order.
    again = by_one(lambda: m.solve(stored.problem, rtol=1e-12).field)
    np.testing.assert_allclose(again, field, rtol=0, atol=CLOSE)
    assert mosaicdd("compare", path, "--reference", "direct").code == 0
    assert mosaicdd("plot", path).code == 0
    assert mosaicdd("report", path).code == 0
    ended = mosaicdd(*SOLVE, *shape, "--domain", common_path / "short.tif", "-o", path)
    assert (
        "short.tif has the shape (15, 20, 24), a mask of the domain has (16, 20, 24) cells"
        in ended.err
    )
    comm.Barrier()


@pytest.mark.usefixtures("quick_layout")
def test_pictures_show_planes(mosaicdd, tmp_path, monkeypatch):
    path = tmp_path / "out.h5"
    assert mosaicdd(*SOLVE, *FIELDS, *SIDES, "-o", path).code == 0
    monkeypatch.setattr(StoredSolution, "field", property(_refuse))
    # As of a large one, which has no balance.
    monkeypatch.setattr("mosaicdd.report.page._PORTION", 1000)
    assert mosaicdd("plot", path).code == 0
    assert (tmp_path / "out.png").stat().st_size > 10000
    assert (
        mosaicdd(
            "plot", path, "--plane", "z=0.3", "--plane", "x=0.11", "-o", tmp_path / "two.pdf"
        ).code
        == 0
    )
    assert mosaicdd("report", path).code == 0
    page = (tmp_path / "out.html").read_text()
    assert page.count("<img") == 6
    assert "in the plane z = 0.4 (x to the right, y up)" in page
    for plane, says in (
        ("z=0.9", "goes from 0 to 0.8"),
        ("w=0", "a plane is along x, y, z"),
        ("z", "AXIS=PLACE"),
    ):
        ended = mosaicdd("plot", path, "--plane", plane)
        assert ended.code == 2
        assert says in ended.err


def _refuse(_):
    raise AssertionError("the whole field is read")
