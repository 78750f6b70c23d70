"""Boxes on the command line: what a solve writes, on any number of ranks, in files and pictures."""

import tomllib

import h5py
import numpy as np
import pytest
from PIL import Image
from scipy.interpolate import RegularGridInterpolator

import mosaicdd as m

CELLS = (16, 20, 24)  # (nz, ny, nx)
SOLVE = "solve -o out.h5 --cells 24x20x16 --spacing 0.05 --rtol 1e-12"
FIELDS = "--pde diffusion --field 'a=expr:1 + x + 2*y*z' --field f=1"
SIDES = "--boundary 'expr:x + y*z' --side back=neumann:0.5 --side top=robin:2,expr:x*z --side 'left[0.2:0.72, :0.4]=neumann:expr:y'"  # fmt: skip
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


@pytest.fixture
def stored(succeed, common_path, comm):
    """Return a function that solves and reads the file: of a box, or of other words."""

    def run(words, solve=SOLVE):
        succeed(f"{solve} {words}")
        comm.Barrier()
        return m.read(common_path / "out.h5")

    return run


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("how", ["", "--window 0.1:0.3,0:0.92,0.33:0.5", "--shards"])
def test_the_file_holds_the_library_s_field(how, stored, comm, by_one):
    place = np.s_[6:11, 0:20, 2:7] if "window" in how else np.s_[0:17, 0:21, 0:25]
    read = stored(f"{FIELDS} {SIDES} {how}")
    np.testing.assert_allclose(read.field, by_one(solved)[place], rtol=0, atol=CLOSE)
    assert read.grid.shape == CELLS
    assert read.window.start == tuple(p.start for p in place)
    np.testing.assert_allclose(read.coordinates(0)[0], 0.05 * read.window.start[0])
    comm.Barrier()


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize(
    "solve",
    [
        f"{SOLVE} {FIELDS} {SIDES}",
        "solve -o out.h5 --cells 32x16x24 --spacing 0.05 --local-solver exact --boundary 'expr:x + y*z'",
    ],
    ids=["multigrid", "exact"],
)
def test_values_at_points_are_those_between_the_nodes(solve, stored, write, common_path, comm):
    places = np.random.default_rng(0).uniform(0, 0.8, (200, 3))
    places[:9, 0], places[9:20, 2], places[20:30, 1] = 1.2, 0.0, 0.35
    write("points.npy", places)
    read = stored("--points points.npy", solve)
    with h5py.File(common_path / "out.h5") as file:
        values = file["values"][()]
        np.testing.assert_array_equal(file["points"][()], places)
    nodes = [0.05 * np.arange(n) for n in read.field.shape]
    linear = RegularGridInterpolator(nodes, read.field)(places[:, ::-1])
    np.testing.assert_allclose(values, linear, rtol=0, atol=1e-13)
    np.testing.assert_allclose(read.at(places), linear, rtol=0, atol=1e-13)
    comm.Barrier()


@pytest.mark.ranks(1, 2, 4)
def test_values_at_points_of_a_mask_of_voxels_are_nan_outside(stored, write, common_path, comm):
    voxels = np.ones(CELLS, bool)
    voxels[:, 8:14, 9:20] = False
    places = np.random.default_rng(0).uniform(0, 1, (300, 3)) * np.multiply(CELLS[::-1], 0.05)
    write("part.npy", voxels)
    write("points.npy", places)
    domain = "--domain part.npy --boundary expr:x*x+y*z --points points.npy"
    read = stored(f"{domain} --pde poisson --field f=1")
    with h5py.File(common_path / "out.h5") as file:
        values = file["values"][()]
    np.testing.assert_allclose(values, read.at(places), rtol=0, atol=1e-13)
    inside = voxels[tuple((places[:, ::-1] / 0.05).astype(int).T)]
    assert np.isfinite(values[inside]).all()
    assert np.isnan(values[~inside]).any()
    comm.Barrier()


@pytest.mark.ranks(4)
def test_a_process_grid_of_three_axes_is_taken_x_first(report_of):
    report = report_of(f"{SOLVE} {FIELDS} --boundary 0 --dims 2x2x1")
    assert (report["dims"], report["grid"]) == ([2, 2, 1], [24, 20, 16])


def test_fields_and_sides_are_read_from_files(stored, write, tmp_path):
    rng = np.random.default_rng(0)
    voxels, f = np.where(rng.random(CELLS) < 0.3, 1e4, 1.0), rng.normal(size=(17, 21, 25))
    left = rng.normal(size=(17, 21))
    write("a.npy", voxels)
    with h5py.File(tmp_path / "given.h5", "w") as file:
        file["f"], file["left"] = f, left
    fields = "--pde diffusion --field a=a.npy --field f=given.h5:/f"
    read = stored(f"{fields} --boundary 0 --side left=dirichlet:given.h5:/left")
    given, sides = {"a": voxels, "f": f}, {"left": m.Dirichlet(left)}
    problem = m.Problem(m.Domain(CELLS, 0.05), "diffusion", given, sides)
    field = m.solve(problem, rtol=1e-12).field
    np.testing.assert_allclose(read.field, field, rtol=0, atol=CLOSE)
    # The file knows its problem, and is one of fields and sides of another.
    np.testing.assert_array_equal(read.problem.fields["a"], voxels)
    again = m.solve(read.problem, rtol=1e-12).field
    np.testing.assert_allclose(again, field, rtol=0, atol=CLOSE)


def test_a_solution_file_is_a_boundary_file(stored, tmp_path):
    first = stored("--boundary expr:x*y*z").field
    (tmp_path / "out.h5").rename(tmp_path / "first.h5")
    np.testing.assert_array_equal(stored("--boundary first.h5").field, first)


@pytest.mark.ranks(1, 2, 3)
def test_a_solve_goes_on_from_its_checkpoint(stored, succeed, common_path, comm, by_one):
    succeed(f"{SOLVE} {FIELDS} {SIDES} --max-iterations 5", code=1)
    assert (common_path / "out.h5.checkpoint").exists()
    comm.Barrier()
    read = stored(f"{FIELDS} {SIDES} --resume")
    assert read.attributes["iterations"] > 5
    np.testing.assert_allclose(read.field, by_one(solved), rtol=0, atol=CLOSE)
    comm.Barrier()


def test_options_come_from_a_run_and_from_what_it_prints(stored, succeed, tmp_path):
    words = f"{FIELDS} {SIDES} --window 0:0.2,0:1,0:0.5"
    first = stored(words).field
    printed = succeed(f"{SOLVE} {words} --print-config")
    assert tomllib.loads(printed)["cells"] == "24x20x16"
    (tmp_path / "run.toml").write_text(printed)
    for config in ("out.h5", "run.toml"):
        succeed(f"solve --config {config} -o second.h5")
        np.testing.assert_array_equal(m.read(tmp_path / "second.h5").field, first)


def test_references_agree(succeed, error_of):
    """The discrete equation is exact for ``x y z``."""
    succeed(f"{SOLVE} --pde poisson --field f=0 --boundary expr:x*y*z")
    for reference in ("pyamg", "direct", "dst", "expr:x*y*z"):
        assert error_of("out.h5", reference) < 1e-9  # of peers, which stop at 1e-10
    succeed(f"{SOLVE} {FIELDS} {SIDES}")
    for reference in ("auto", "pyamg"):  # where a side is natural, too
        assert error_of("out.h5", reference) < 1e-8


@pytest.mark.ranks(1, 2)
@pytest.mark.usefixtures("quick_layout")
def test_a_mask_of_voxels_makes_its_way_through_files(
    stored, succeed, refuse, common_path, comm, by_one
):
    """From a stack of pictures, with a condition on a part of the faces, to a picture with the outside blank."""
    mask = np.zeros(CELLS, bool)
    mask[:4], mask[6:8, 5:7, 4:6] = True, True  # a slab, and a part that nothing touches

    def draw(name, planes):
        first, *others = [Image.fromarray(plane[::-1]) for plane in planes]
        first.save(common_path / name, save_all=True, append_images=others)

    by_one(draw, "part.tif", mask)
    by_one(draw, "short.tif", mask[:-1])
    shape = "--pde poisson --field f=1 --boundary expr:x --side outline=neumann:0"
    part = "outline[(x >= 0.5) & (y/2 < 0.3)]"
    more = f"--side '{part}=robin:2,expr:x*z' --domain part.tif --leave-out-floating"
    assert "0.41% left out" in succeed(f"{SOLVE} {shape} {more}")
    read = m.read(common_path / "out.h5")
    height = np.arange(17)[:, None, None] + np.zeros((21, 25))
    np.testing.assert_array_equal(np.isnan(read.field), height > 4)
    sides = dict.fromkeys(["left", "right", "bottom", "top", "back", "front"], m.Dirichlet("x"))
    sides |= {"outline": m.Neumann(0.0), part: m.Robin(2.0, "x*z")}
    slab = m.Domain.from_mask(height[:-1, :-1, :-1] < 4, 0.05)
    problem = m.Problem(slab, "poisson", {"f": 1.0}, sides)
    # The file knows its problem, whose parts of outlines are in their order.
    for each in (problem, read.problem):
        field = by_one(lambda given=each: m.solve(given, rtol=1e-12).field)
        np.testing.assert_allclose(read.field, field, rtol=0, atol=CLOSE)
    for words in ("compare out.h5 --reference direct", "plot out.h5", "report out.h5"):
        succeed(words)
    sizes = "short.tif has the shape (15, 20, 24), a mask of the domain has (16, 20, 24) cells"
    refuse(f"{SOLVE} {shape} --domain short.tif", sizes)


@pytest.mark.usefixtures("quick_layout")
def test_pictures_show_planes(stored, succeed, refuse, tmp_path, monkeypatch):
    read = stored(f"{FIELDS} {SIDES}")
    whole = property(lambda _: pytest.fail("the whole field is read"))
    monkeypatch.setattr(type(read), "field", whole)
    # As of a large one, which has no balance.
    monkeypatch.setattr("mosaicdd.report.page._PORTION", 1000)
    succeed("plot out.h5")
    assert (tmp_path / "out.png").stat().st_size > 10000
    succeed("plot out.h5 --plane z=0.3 --plane x=0.11 -o two.pdf")
    succeed("report out.h5")
    page = (tmp_path / "out.html").read_text()
    assert page.count("<img") == 6
    assert "in the plane z = 0.4 (x to the right, y up)" in page
    refuse("plot out.h5 --plane z=0.9", "goes from 0 to 0.8")
    refuse("plot out.h5 --plane w=0", "a plane is along x, y, z")
    refuse("plot out.h5 --plane z", "AXIS=PLACE")
