"""Rasters as fields: read as their formats say, checked against the grid, the same solution as from arrays."""

import codecs

import numpy as np
import pytest
import xarray
from PIL import Image

import mosaicdd as m
from mosaicdd.storage.domain_file import read_domain
from mosaicdd.storage.field_file import FieldFile

RNG = np.random.default_rng(0)
CELLS = np.round(np.exp(RNG.normal(size=(24, 32))), 4)
NODES = np.round(RNG.normal(size=(25, 33)), 4)
X, Y, STEP = 500.0, 7000.0, 0.25  # of the lower left corner of the domain, and between nodes


def written(path, values, *, x=X, y=Y, step=STEP):
    """Write a raster whose domain has that corner, as its name ends."""
    per_cell = values.shape[1] % 2 == 0
    along = {"y": y + step * (np.arange(values.shape[0]) + 0.5 * per_cell)}
    along["x"] = x + step * (np.arange(values.shape[1]) + 0.5 * per_cell)
    if path.suffix == ".asc":
        end, at = ("corner", (x, y)) if per_cell else ("center", (x, y))
        head = f"NCOLS {values.shape[1]}\nnrows {values.shape[0]}\nxll{end} {at[0]}\nyll{end} {at[1]}\ncellsize {step}\nNODATA_value -99\n"
        rows = np.where(np.isnan(values), -99.0, values)[::-1]
        path.write_text(head + "\n".join(" ".join(map(str, row)) for row in rows) + "\n")
    elif path.suffix == ".csv":
        places = [(i, j) for i, j in np.ndindex(values.shape) if np.isfinite(values[i, j])]
        RNG.shuffle(places)
        rows = [f"{along['x'][j]!s},{along['y'][i]!s},{values[i, j]!s}" for i, j in places]
        path.write_text("\n".join(["x,y,a", *rows]) + "\n")
    elif path.suffix == ".tif":
        # Places are those of the upper left pixel's corner, or of its middle.
        left, upper = along["x"][0] - 0.5 * step * per_cell, along["y"][-1] + 0.5 * step * per_cell
        tags = {33550: (step, step, 0.0), 33922: (0.0, 0.0, 0.0, left, upper, 0.0), 42113: "-99"}
        tags[34735] = (1, 1, 0, 1, 1025, 0, 1, 1 if per_cell else 2)
        rows = np.where(np.isnan(values), -99.0, values)[::-1].astype(np.float32)
        Image.fromarray(rows).save(path, tiffinfo=tags, compression="tiff_lzw")
    else:
        down = {"y": along["y"][::-1], "x": along["x"]}
        array = xarray.DataArray(values[::-1], dims=("y", "x"), coords=down, name="a")
        array.to_netcdf(path, engine="scipy")
    return path


@pytest.mark.parametrize("ending", [".asc", ".csv", ".nc", ".tif"])
@pytest.mark.parametrize("values", [CELLS, NODES], ids=["cells", "nodes"])
def test_rows_go_from_the_bottom_up_and_places_are_known(ending, values, tmp_path):
    field = FieldFile(written(tmp_path / f"a{ending}", values))
    if ending == ".tif":
        values = values.astype(np.float32).astype(float)  # which it holds
    np.testing.assert_array_equal(field[()], values)
    np.testing.assert_array_equal(field[..., 3:5, 2:4], values[3:5, 2:4])
    half = 0.5 * STEP * (values.shape == CELLS.shape)
    first = X + half, Y + half
    assert (field.coords["x"][0], field.coords["y"][0]) == first
    assert field.coords["x"][-1] - first[0] == STEP * (values.shape[1] - 1)


def test_a_table_of_numbers_alone_is_an_array(tmp_path):
    path = tmp_path / "a.csv"
    np.savetxt(path, CELLS, delimiter=",")
    field = FieldFile(path)
    np.testing.assert_allclose(field[()], CELLS)
    assert dict(field.coords) == {}


@pytest.mark.parametrize("ending", [".asc", ".csv"])
def test_a_mark_of_the_byte_order_is_no_part_of_a_text(ending, tmp_path):
    path = tmp_path / f"a{ending}"
    written(path, CELLS)
    places = FieldFile(path).coords
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    np.testing.assert_array_equal(FieldFile(path).coords["y"], places["y"])


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_the_solution_is_that_of_arrays(comm, common_path, by_one):
    names = "a.asc", "f.nc", "c.csv"
    cells, nodes = np.tile(CELLS, (2, 2)), RNG.normal(size=(49, 65)).round(4)

    def write():
        for name, values in zip(names, (cells, nodes, abs(nodes)), strict=True):
            written(common_path / name, values)

    by_one(write)

    def solved(*values, origin=None):
        domain = m.Domain(cells.shape, STEP, origin=origin)
        fields = dict(zip("afc", values, strict=True))
        solution = m.solve(m.Problem(domain, "diffusion", fields, m.Dirichlet("x")), ranks=comm)
        return solution.gather()

    files = solved(*(FieldFile(common_path / name) for name in names))
    np.testing.assert_array_equal(files, solved(cells, nodes, abs(nodes), origin=(X, Y)))


@pytest.mark.parametrize("ending", [".asc", ".tif"])
def test_the_command_line_takes_them_with_what_they_have_data_of_as_domain(
    ending, mosaicdd, tmp_path
):
    values = CELLS.astype(np.float32).astype(float)
    values[:8, 20:] = np.nan  # no part of the domain
    values[:, :3] = np.nan
    raster, rain = written(tmp_path / f"a{ending}", values), written(tmp_path / "f.csv", NODES)
    solve = "solve --cells 32x24 --spacing 0.25 --pde diffusion --boundary 1"
    fields = ("--field", f"a={raster}", "--field", f"f={rain}")
    ended = mosaicdd(
        solve, *fields, "--domain", raster, "--rtol", "1e-10", "-o", tmp_path / "out.h5"
    )
    assert ended.code == 0, ended.err
    domain = m.Domain.from_mask(np.isfinite(values), STEP, per_cell=True)
    given = m.Problem(domain, "diffusion", {"a": values, "f": NODES}, m.Dirichlet(1.0))
    expected = m.solve(given, settings=m.SolveSettings(rtol=1e-10))
    stored = m.read(tmp_path / "out.h5").field
    assert np.isnan(stored).any()
    np.testing.assert_allclose(stored, expected.field, atol=1e-12)
    # What lacks inside of a domain is named, as are rasters that do not fit each other, or the grid, and
    # a domain that lies beside a field, or is coarser than the grid.
    known = (solve, "--field", f"a={raster}")
    of = lambda name, *what, **how: written(tmp_path / name, *what, **how)
    for given, said in (
        (fields, "the field a has 168 of 768 values that are not finite, the first at cell (0, 0)"),
        (("--field", f"f={of('shifted.nc', NODES, x=X + STEP)}", "--domain", raster), "--field: the domain begins at x = 500 by the raster of a, at 500.25 by that of f: cut them"),
        (("--field", f"f={of('wide.nc', NODES, step=0.5)}", "--domain", raster), "has coordinates 0.5 apart along y, the grid has a spacing of 0.25"),
        (("--field", f"f={of('small.asc', CELLS[:9])}", "--domain", raster), "the field f has the shape (9, 32), the grid has (25, 33) nodes"),
        (("--domain", of("beside.nc", values, y=Y - STEP)), "--field: the domain begins at y = 7000 by the raster of a, at 6999.75 by that of the domain: cut"),
        (("--domain", of("coarse.nc", values, step=25.0)), "coarse.nc has coordinates 25 apart along y, the grid has a spacing of 0.25: give --spacing 25"),
    ):  # fmt: skip
        more = given[2:] if given is fields else given
        ended = mosaicdd(*known, *more, "-o", tmp_path / "bad.h5")
        assert (ended.code, len(ended.err.splitlines())) == (2, 1)
        assert said in ended.err
    assert not (tmp_path / "bad.h5").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.asc", "1 2 3\n", "begins with ncols, nrows, xllcorner, .* got none of these"),
        ("a.asc", "ncols 2\nnrows 1\ncellsize 1\n1 2\n", "got ncols, nrows, cellsize"),
        ("a.asc", "ncols 2\nnrows 2\nxllcorner 0\nyllcorner 0\ncellsize 1\n1 2 3\n", "2 rows of 2 numbers are 4, there are 3"),
        ("a.asc", "ncols two\n", "each with a number"),
        ("a.asc", "ncols 1000000000\nnrows 1000000000\nxllcorner 0\nyllcorner 0\ncellsize 1\n1\n", "1000000000 rows of 1000000000 numbers are 1000000000000000000, there are 1"),
        ("a.asc", "ncols 1\nnrows 1000000000000\nxllcorner 0\nyllcorner 0\ncellsize 1\n1 2\n", "there are 2"),
        ("a.asc", "ncols nan\nnrows 1\nxllcorner 0\nyllcorner 0\ncellsize 1\n1\n", "got ncols nan"),
        ("a.asc", "ncols 1.5\nnrows 1\nxllcorner 0\nyllcorner 0\ncellsize 1\n1\n", "got ncols 1.5"),
        ("a.asc", "ncols 2\nnrows 1\nxllcorner inf\nyllcorner 0\ncellsize 1\n1 2\n", "got xllcorner inf"),
        ("a.csv", "1,2\n3\n", "not rows of numbers with commas between"),
        ("a.csv", "x,value\n1,2\n", "has the columns x,y,value, got x,value"),
        ("a.csv", "x,y,a\n0,0,1\n1,0,2\n0,0,3\n", "3 rows are of fewer places"),
        ("a.csv", "x,y,a\n0,0,1\n1,0,2\n5,0,3\n", "coordinates along x that are not evenly spaced, with steps from 1 to 4"),
        ("a.csv", "x,y,a\n" + "".join(f"{i},{i},1\n" for i in range(5000)), "5000 rows are of a raster of 5000 x 5000 places"),
        ("a.csv", "", "not rows of numbers with commas between .it is empty"),
        ("a.nc", "nothing", "not netCDF"),
        ("a.nc", "CDF", "not netCDF"),
        ("a.grd", "nothing", "or a raster, .asc, .csv, .nc, .tif, .tiff"),
        ("a.tif", "nothing", "not a TIFF file that Pillow reads"),
    ],
)  # fmt: skip
def test_what_is_no_raster_is_refused(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        FieldFile(tmp_path / name)


def test_a_stack_of_pictures_is_a_field_in_space_and_colours_are_none(tmp_path):
    stack = (100 * RNG.random((3, 5, 4))).astype(np.uint16)
    pages = [Image.fromarray(page[::-1]) for page in stack]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    field = FieldFile(tmp_path / "a.tif")
    np.testing.assert_array_equal(field[()], stack)
    assert dict(field.coords) == {}
    Image.new("RGB", (4, 5)).save(tmp_path / "b.tif")
    with pytest.raises(ValueError, match=r"these are colours, or bits \(RGB\): save one band"):
        FieldFile(tmp_path / "b.tif")
    Image.fromarray(NODES.astype(np.float32)).save(
        tmp_path / "c.tif", tiffinfo={34264: (1.0, 0.1) * 8}
    )
    for read in (FieldFile, lambda path: read_domain(str(path), (24, 32), STEP)):
        with pytest.raises(ValueError, match="told by a matrix, they may be turned: resample it"):
            read(tmp_path / "c.tif")


def test_of_several_variables_one_is_named(tmp_path):
    path = tmp_path / "a.nc"
    arrays = {name: (("x", "y"), values.T) for name, values in (("k", CELLS), ("other", 2 * CELLS))}
    xarray.Dataset(arrays).to_netcdf(path, engine="scipy")
    np.testing.assert_array_equal(FieldFile(f"{path}:/k")[()], CELLS)
    with pytest.raises(ValueError, match=f"holds k, other: name one, as {path}:/k"):
        FieldFile(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        FieldFile(path)
