"""A problem moved by an origin: all places are told in its coordinates, and the field is the same to rounding."""

import json

import h5py
import numpy as np
import pytest
import xarray

import mosaicdd as m

CELLS, H = (96, 128), 1 / 32
X, Y = 500000.25, -3.5  # of the lower left corner, x as surveyors have it
RNG = np.random.default_rng(5)
LOG = np.round(RNG.normal(size=CELLS), 3)


def moved(*points, by=(X, Y)):
    return (np.array(points) + by).tolist()


def plain(x, y, **options):
    """Return a rectangle whose data are formulas."""
    domain = m.Domain(CELLS, H, origin=(x, y))
    f = f"sin(x-{x}) * (y-({y}))"
    return m.Problem(domain, "poisson", {"f": f}, m.Dirichlet(f"x-{x} + (y-({y}))**2"))


def with_sides(x, y):
    """Return a medium with parts of sides, a well, a foil and a line that is held."""
    at = (x, y)
    fields = {
        "a": m.Foils(
            [
                m.Foil(moved((1.0625, 0), (1.0625, 2), by=at), resistance=0.5),
                m.Foil(moved((2, 1), (3, 1), by=at), conductance=2.0),
            ],
            lambda u, v: 1 + (u - x) * (v - y) / 9,
        ),
        "f": m.Wells([(moved((3.3, 0.7), by=at)[0], -2.0)], f"x-{x}"),
    }
    sides = {
        f"left[{y + 0.5}:{y + 2}]": m.Dirichlet(lambda u, v: v - y),
        "left": m.Neumann(f"x-{x} + 1"),
        "bottom": m.Robin(2.0, f"cos(x-{x})"),
        "right": m.Neumann(0.0),
        "top": m.Neumann(f"x-{x}"),
        "river": m.Held(moved((0.5, 2.5), (2.0, 2.75), by=at), f"y-({y})"),
    }
    return m.Problem(m.Domain(CELLS, H, origin=at), "diffusion", fields, sides)


def disc(x, y):
    """Return a part by its distance, with values on a part of its outline."""
    domain = m.Domain.from_distance(
        f"hypot(x-{x}-2, y-({y})-1.5) - 1.3", CELLS, H, origin={"x": x, "y": y}
    )
    sides = {f"outline[x > {x} + 2]": m.Dirichlet(f"y-({y})"), "outline": m.Neumann("0.1")}
    return m.Problem(domain, "diffusion", {"f": f"x-{x}"}, sides)


def polygons(x, y):
    outer = moved((0.2, 0.3), (3.7, 0.5), (3.1, 2.8), (0.4, 2.2), by=(x, y))
    hole = moved((1.5, 1.1), (2.3, 1.2), (1.9, 1.9), by=(x, y))
    domain = m.Domain.from_polygons(outer, [hole], cells=CELLS, spacing=H, origin=(x, y))
    sides = {"outer": m.Dirichlet(lambda u, v: u - x), "hole1": m.Neumann(1.0)}
    return m.Problem(domain, "diffusion", {}, sides)


def by_rasters(x, y):
    """Return a domain that begins where its rasters do."""
    along = {"y": y + H * (np.arange(96) + 0.5), "x": x + H * (np.arange(128) + 0.5)}
    a = xarray.DataArray(np.exp(LOG), dims=("y", "x"), coords=along)
    problem = m.Problem(m.Domain(CELLS, H), "diffusion", {"a": a}, m.Dirichlet(f"x-{x}"))
    assert problem.domain.origin == (x, y)
    return problem


def nonlinear(x, y):
    domain = m.Domain(CELLS, H, origin=(x, y))
    return m.Problem(domain, "minimal-surface", {}, m.Dirichlet(f"sin(x-{x}) + (y-({y}))**2 / 4"))


def box(x, y):
    domain = m.Domain((32, 64, 64), H, origin=(x, y, 7.0 * (x != 0)))
    sides = {"front": m.Neumann(f"x-{x}"), "back": m.Dirichlet(f"y-({y}) + z*0")}
    wells = m.Wells([((x + 0.9, y + 1.1, 7.0 * (x != 0) + 0.8), 1.0)])
    return m.Problem(domain, "diffusion", {"f": wells}, sides)


@pytest.mark.parametrize(
    "build",
    [plain, with_sides, disc, polygons, by_rasters, nonlinear, box],
    ids=lambda f: f.__name__,
)
@pytest.mark.ranks(1, 2, 4)
def test_the_field_is_that_at_the_origin(comm, build):
    here, there = (m.solve(build(*at), ranks=comm, rtol=1e-11) for at in ((0.0, 0.0), (X, Y)))
    assert here.converged
    assert there.converged
    field, other = here.gather(), there.gather()
    if field is not None:
        np.testing.assert_allclose(other, field, rtol=0, atol=3e-8 * np.nanmax(abs(field)))
        assert np.nanmax(abs(field)) > 0.1
    for axis, first in ((-1, X), (-2, Y)):
        np.testing.assert_allclose(there.coordinates(axis) - here.coordinates(axis), first)


@pytest.mark.ranks(1, 2, 4)
def test_what_is_asked_is_asked_in_the_same_coordinates(comm, common_path):
    points = [(0.3, 0.4), (2.1, 1.7), (3.9, 2.9)]
    asked = []
    for x, y in ((0.0, 0.0), (X, Y)):
        problem, at = with_sides(x, y), (x, y)
        path = common_path / f"{x:g}.h5"
        solution = m.solve(problem, ranks=comm, rtol=1e-11)
        line = solution.along(moved((0.5, 0.5), (3.5, 2.5), by=at))
        largest = solution.max()
        asked.append(
            [
                *solution.at(moved(*points, by=at)).ravel(),
                *np.ravel(line[-1]),
                *np.subtract(largest.place, at),
                solution.integral({"x": (x + 0.4, x + 2.2), "y": (y + 0.3, y + 1)}),
                solution.flow("left", (y + 0.5, y + 1.0)),
                solution.flow(f"left[{y + 0.5}:{y + 2}]"),
                solution.flow("river"),
                solution.balance().left_over,
            ]
        )
        window = m.solve(
            problem, ranks=comm, rtol=1e-11, window={"x": (x + 1, x + 2), "y": (y + 0.5, y + 1)}
        )
        window.save(path)
        asked[-1] += list(np.ravel(m.read(path).field))
        stored = m.read(path)
        np.testing.assert_allclose(np.subtract([stored.x[0], stored.y[-1]], at), [1, 1])
        again = stored.problem
        assert (again.domain.origin or (0.0, 0.0)) == at
        with h5py.File(path) as file:
            assert tuple(file.attrs["origin"]) == (y, x)
            assert tuple(file["solution"].attrs["origin"]) == (y + 0.5, x + 1)
            np.testing.assert_array_equal(file["VTKHDF"].attrs["Origin"], (x + 1, y + 0.5, 0))
        array = stored.to_xarray()
        assert float(array.x[0]) == x + 1
    np.testing.assert_allclose(asked[1], asked[0], rtol=0, atol=2e-7)


@pytest.mark.ranks(2)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--well", "3,1=1"), "the well at (3, 1) is outside of the domain, which goes from (100, 50) to (104, 53)"),
        (("--origin", "1,2,3"), "the origin is a place, (x, y), got (1.0, 2.0, 3.0)"),
        (("--origin", "1e16,0"), "nodes 0.03125 apart cannot be told apart at"),
        (("--origin", "1"), "is not of the form X,Y[,Z], as in 500000,4200000"),
        (("--window", "0:1,0:1"), "y from 0 to 1 reaches beyond the domain, 50 to 53"),
        (("--side", "left[0:1]=dirichlet:0"), "left[0:1] reaches beyond the side, which goes from 50 to 53"),
        (("--hold", "1,1=0"), "the point (1, 1) of what is held is outside of the domain, which goes from (100, 50)"),
        (("--foil", "1,1 1,2=resistance:1", "--field", "a=1"), "the foil through (1, 1) reaches out of the domain"),
    ],
)  # fmt: skip
def test_places_beside_the_domain_are_refused(mosaicdd, common_path, options, message):
    out = common_path / "bad.h5"
    ended = mosaicdd(
        "solve", "-o", out, "--cells", "128x96", "--spacing", H, "--pde", "diffusion", "--boundary",
        "0", "--origin", "100,50", *options,
    )  # fmt: skip
    assert ended.code == 2
    assert ended.err == "" or message in ended.err
    assert not out.exists()


def test_the_command_line_has_it_and_files_repeat_it(mosaicdd, tmp_path):
    np.savetxt(tmp_path / "points.txt", moved((0.3, 0.4)))
    (tmp_path / "outer.json").write_text(
        json.dumps({"outer": moved((0.5, 0.5), (3.5, 0.5), (2.0, 2.5))})
    )
    first = tmp_path / "first.h5"
    solve = ("solve", "--cells", "128x96", "--spacing", str(H), "--pde", "diffusion", "--boundary", f"expr:x-{X}")  # fmt: skip
    for name, domain in (("first", ()), ("part", ("--domain", tmp_path / "outer.json"))):
        ended = mosaicdd(*solve, *domain, "--origin", f"{X},{Y}", "-o", tmp_path / f"{name}.h5")
        assert ended.code == 0, ended.err
    network = mosaicdd(
        "solve", "--cells", "64x64", "--origin", f"{X},{Y}", "--boundary", f"expr:x-{X}", "--points",
        tmp_path / "points.txt", "-o", tmp_path / "points.h5",
    )  # fmt: skip
    assert network.code == 0, network.err
    with h5py.File(tmp_path / "points.h5") as file:
        np.testing.assert_allclose(file["values"][()].ravel(), 0.3, atol=1e-6)
    u = m.read(first)
    np.testing.assert_allclose(u.field, np.broadcast_to(u.x - X, u.field.shape), atol=1e-7)
    part = m.read(tmp_path / "part.h5").field
    np.testing.assert_allclose(
        part, np.where(np.isnan(part), np.nan, np.broadcast_to(u.x - X, part.shape)), atol=1e-6
    )
    assert np.isfinite(part).sum() > 100
    assert "largest value 4 at (500004.25, " in mosaicdd("quantities", first).out
    config = mosaicdd("solve", "--config", first, "--print-config", "-o", "x.h5").out
    assert f'origin = "{X},{Y}"' in config
    ended = mosaicdd("solve", "--config", first, "-o", tmp_path / "again.h5")
    assert ended.code == 0, ended.err
    np.testing.assert_array_equal(m.read(tmp_path / "again.h5").field, u.field)
    # A march begins with a formula in these coordinates.
    march = mosaicdd(
        "solve", "--cells", "128x96", "--spacing", H, "--origin", f"{X},{Y}", "--pde", "heat", "--boundary",
        f"expr:x-{X}", "--initial", f"expr:x-{X}", "--steps", "2", "--dt", "0.1", "-o", tmp_path / "march.h5",
    )  # fmt: skip
    assert march.code == 0, march.err
    march = m.read(tmp_path / "march.h5")
    np.testing.assert_allclose(march.field, u.field, atol=1e-6)
    np.testing.assert_array_equal(march.x, u.x)
    # Another place is another problem.
    ended = mosaicdd(*solve, "-o", tmp_path / "other.h5")
    ended = mosaicdd("compare", first, "--reference", tmp_path / "other.h5")
    assert ended.code == 2
    assert "128x96 cells with a spacing of 0.03125 from (500000.25, -3.5) on" in ended.err


def test_a_raster_elsewhere_than_the_origin_is_refused():
    along = {"y": Y + H * (np.arange(96) + 0.5), "x": X + H * (np.arange(128) + 0.5)}
    a = xarray.DataArray(np.exp(LOG), dims=("y", "x"), coords=along)
    domain = m.Domain(CELLS, H, origin=(0, 0))
    with pytest.raises(
        ValueError, match=r"begins at y = 0 by its origin, at -3.5 by the raster of a"
    ):
        m.Problem(domain, "diffusion", {"a": a}, m.Dirichlet("x"))
    with pytest.raises(TypeError, match=r"the origin is a place, \(x, y\), got 3"):
        m.Domain(CELLS, H, origin=3)
    with pytest.raises(ValueError, match="the origin must be finite"):
        m.Domain(CELLS, H, origin=(np.nan, 0))


def test_a_plan_is_of_one_place():
    solver = m.Solver(plain(X, Y))
    solver()
    solution = solver(plain(X, Y))
    assert solution.converged
    with pytest.raises(ValueError, match="domain"):
        solver(plain(0.0, 0.0))
