"""Several problems in time, windows and shards: the same as each alone and whole; going on; files of them."""

import h5py
import numpy as np
import pytest
from interrupted_marches import interrupted

import mosaicdd as m

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
TIGHT = {"settings": m.SolveSettings(rtol=1e-11), "solver_share": 0}
STEPS = {"dt": 0.05, "steps": 3, "every": 2}
CELLS = {"plane": (48, 64), "box": (16, 24, 24)}
WINDOWS = {"plane": ((0.35, 0.5), (0.0, 0.42)), "box": ((0.1, 0.15), (0.0, 0.2), (0.3, 0.6))}
PARTS = {
    "plane": (slice(11, 17), slice(0, 15)),
    "box": (slice(3, 6), slice(0, 8), slice(9, 21)),
}


def given(kind):
    """Return three problems at once, and a function that gives each alone, with its initial values."""
    cells, h = CELLS[kind], 1 / 32
    nodes = tuple(n + 1 for n in cells)
    rng = np.random.default_rng(3)
    initial = rng.random((3, *nodes))
    sources = rng.random((3, STEPS["steps"] + 1, *nodes))
    edges = ["sin(t)*y", "1 + t", "x*y"]
    domain = m.Domain(cells, h)

    def sides(values):
        return {"left": m.Dirichlet(values), "right": m.Neumann("t*y")}

    def alone(number):
        problem = m.Problem(domain, "heat", {"f": sources[number]}, sides(edges[number]))
        return problem, initial[number]

    return (m.Problem(domain, "heat", {"f": sources}, sides(edges)), initial), alone


@RANKS
@pytest.mark.parametrize("kind", ["plane", "box"])
def test_each_of_several_is_that_which_is_marched_alone(kind, comm, by_one):
    together, alone = given(kind)
    series = m.march(*together, ranks=comm, **STEPS, **TIGHT)
    assert series.converged
    assert len(series.report["problems"]) == series.problems == 3
    for number in range(3):
        one = by_one(lambda k: m.march(*alone(k), **STEPS, **TIGHT), number)
        for at in range(len(one)):
            fields = series.gather(at)[number]
            np.testing.assert_allclose(fields, one[at], rtol=0, atol=0 if comm.size == 1 else 2e-10)
        np.testing.assert_allclose(series.balance()[number].stored, one.balance().stored, rtol=1e-7)
        assert series.steps["time"][number].tolist() == one.steps["time"].tolist()


@RANKS
@pytest.mark.parametrize("kind", ["plane", "box"])
def test_files_of_a_window_and_of_shards_hold_that_part_of_each_problem(kind, comm, common_path):
    (problem, initial), _ = given(kind)
    whole = m.march(problem, initial, ranks=comm, **STEPS, **TIGHT)
    window, part = WINDOWS[kind], PARTS[kind]
    paths = {shards: common_path / f"{shards}.h5" for shards in (True, False)}
    for shards, path in paths.items():
        output = m.Output(path, shards=shards)
        series = m.march(
            problem, initial, ranks=comm, window=window, output=output, **STEPS, **TIGHT
        )
        for at in range(3):
            expected = whole.gather(at)[:, *part]
            np.testing.assert_array_equal(series.gather(at), expected)
            for number in range(3):
                stored = m.read(path, number, frame=at)
                np.testing.assert_array_equal(stored.field, expected[number])
                assert stored.time == whole.times[at]
                assert (stored.number, stored.problems) == (number, 3)
        assert not list(common_path.glob("*.frames*"))
    np.testing.assert_array_equal(series.x, whole.x[part[-1]])
    assert (common_path / "True.h5.shards").is_dir()
    stored = m.read(paths[True], 1)
    assert stored.history["time"].tolist() == whole.steps["time"][1].tolist()
    assert stored.to_xarray().dims == ("time", *"zyx"[-len(part) :])


@RANKS
def test_what_was_kept_in_memory_is_saved_in_shards(comm, common_path):
    (problem, initial), _ = given("plane")
    series = m.march(problem, initial, ranks=comm, **STEPS, **TIGHT)
    series.save(common_path / "out.h5", shards=True)
    for number in range(3):
        np.testing.assert_array_equal(
            m.read(common_path / "out.h5", number).field, series.gather()[number]
        )


@RANKS
@pytest.mark.parametrize("shards", [False, True])
def test_an_interrupted_march_of_several_goes_on_where_each_was(shards, comm, common_path):
    (problem, initial), _ = given("plane")
    path, whole = common_path / "out.h5", common_path / "whole.h5"
    options = {"ranks": comm, **STEPS, **TIGHT}
    m.march(problem, initial, output=whole, **options)
    part = interrupted(problem, initial, 0.5, m.Output(path, shards=shards), **options)
    assert [row["steps"] for row in part.report["problems"]] == [3, 2, 0]
    stored = m.read(path, 2, frame=0)
    assert np.isnan(stored.field).all()
    assert stored.status == "interrupted"
    resuming = m.Output(path, shards=shards, resume=True)
    with pytest.raises(ValueError, match=r"resume: .* its steps is 3, not 2"):
        m.march(problem, initial, output=resuming, **{**options, "steps": 2})
    two = {"left": m.Dirichlet(["sin(t)*y", "1 + t"]), "right": m.Neumann("t*y")}
    fewer = m.Problem(problem.domain, "heat", {"f": problem.fields["f"][:2]}, two)
    with pytest.raises(ValueError, match=r"resume: .* its problems is 3, not 2"):
        m.march(fewer, initial[:2], output=resuming, **options)
    other = m.Output(path, shards=not shards, resume=True)
    with pytest.raises(
        ValueError, match=r"resume: .* its dims, which with shards must be the same"
    ):
        m.march(problem, initial, output=other, **options)
    resumed = m.march(problem, initial, output=resuming, **options)
    assert resumed.converged
    for number in range(3):
        for at in range(3):
            np.testing.assert_array_equal(
                m.read(path, number, frame=at).field, m.read(whole, number, frame=at).field
            )
    assert not list(common_path.glob("*.checkpoint")) + list(common_path.glob("*.frames*"))


def test_a_problem_whose_data_end_leaves_the_others(tmp_path):
    sources = np.ones((3, 4, 33, 33))
    sources[1, 2:, 5, 7] = np.nan
    path = tmp_path / "out.h5"
    series = m.march(
        m.Problem((32, 32), "heat", {"f": sources}), 0.5, dt=0.05, steps=3, output=path
    )
    statuses = [row["status"] for row in series.report["problems"]]
    assert statuses == ["converged_rtol", "diverged_nan", "converged_rtol"]
    assert series.status == "diverged_nan"
    assert "not finite" in series.report["failure"]
    assert [row["steps"] for row in series.report["problems"]] == [3, 1, 3]
    assert np.isfinite(m.read(path, 1, frame=1).field).all()
    assert np.isnan(m.read(path, 1, frame=2).field).all()
    assert np.isfinite(m.read(path, 2).field).all()
    assert m.read(path, 0).attributes["failure"] is None
    assert len(m.read(path, 1).history["step"]) == 1


def vtk_arrays(path, time):
    """Return what ParaView's reader finds in a file at a step: arrays by name, and its dimensions."""
    vtk = pytest.importorskip("vtk")
    from vtk.util.numpy_support import vtk_to_numpy

    reader = vtk.vtkHDFReader()
    reader.SetFileName(str(path))
    reader.UpdateInformation()
    assert reader.GetNumberOfSteps() == 3
    reader.SetStep(time)
    reader.Update()
    data = reader.GetOutput()
    points = data.GetPointData()
    names = [points.GetArrayName(i) for i in range(points.GetNumberOfArrays())]
    return {n: vtk_to_numpy(points.GetArray(n)) for n in names}, data.GetDimensions()


@pytest.mark.parametrize("kind", ["plane", "box"])
@pytest.mark.parametrize("shards", [False, True])
def test_paraview_plays_several_problems(kind, shards, tmp_path):
    (problem, initial), _ = given(kind)
    path = tmp_path / "out.h5"
    m.march(problem, initial, output=m.Output(path, shards=shards), **STEPS)
    with h5py.File(path) as file:
        labels = [dim.label for dim in file["solution"].dims]
        fields = file["solution"][()]
    assert labels == ["time", "problem", *"zyx"[-len(CELLS[kind]) :]]
    for time in range(3):
        arrays, size = vtk_arrays(path, time)
        if kind == "plane":
            assert size == (65, 49, 3)
            np.testing.assert_array_equal(arrays["solution"], fields[time].ravel())
        else:
            assert size == (25, 25, 17)
            for number in range(3):
                np.testing.assert_array_equal(
                    arrays[f"problem{number}"], fields[time, number].ravel()
                )


@pytest.mark.parametrize(
    ("fields", "initial", "sides", "message"),
    [
        (
            {},
            np.ones((2, 9, 9)),
            [0.0, 1.0, "x"],
            "field initial is of 2 problems, others are of 3",
        ),
        ({"f": np.ones((3, 1, 9, 9))}, np.ones((2, 9, 9)), "0", "field initial is of 2 problems"),
        ({"f": np.ones((2, 3, 9, 9))}, 0.0, "0", "f has values at 3 times, .* need 4"),
        ({"f": np.ones((2, 3, 8, 9))}, 0.0, "0", "f has the shape"),
    ],
)
def test_what_is_of_different_numbers_is_refused(fields, initial, sides, message):
    def marched():
        problem = m.Problem((8, 8), "heat", fields, {"left": m.Dirichlet(sides)})
        return m.march(problem, initial, dt=0.1, steps=3)

    with pytest.raises(ValueError, match=message):
        marched()


def test_a_source_with_an_axis_of_times_is_for_steps_only():
    problem = m.Problem((32, 32), "diffusion", {"f": np.ones((2, 3, 33, 33))})
    with pytest.raises(ValueError, match="only steps in time"):
        m.solve(problem)


def test_a_window_beside_the_domain_is_refused():
    problem = m.Problem((32, 32), "heat")
    with pytest.raises(ValueError, match="window: x from 0 to 9 reaches beyond the domain"):
        m.march(problem, 1.0, dt=0.1, steps=1, window=((0, 0.1), (0, 9)))


@RANKS
def test_the_command_line_marches_several_and_shows_them(mosaicdd, strict_json, comm, common_path):
    path, begin = common_path / "out.h5", common_path / "begin.npy"
    if comm.rank == 0:
        np.save(begin, np.random.default_rng(0).random((2, 65, 65)))
    comm.Barrier()
    options = ["--cells", "64x64", "--pde", "heat", "--steps", 2, "--dt", 0.01, "--every", 1]
    options += ["--boundary", "gp:seed=0..1", "--initial", begin, "--shards", "--json"]
    ended = mosaicdd("solve", "-o", path, *options, "--window", "0:0.3,0.1:0.4")
    assert ended.code == 0
    assert [row["problem"] for row in strict_json(ended.out)["problems"]] == [0, 1]
    ended = mosaicdd("compare", path, "--reference", "expr:0*t", "--frame", 1, "--json")
    report = strict_json(ended.out)
    assert (report["time"], len(report["problems"])) == (0.01, 2)
    shown = mosaicdd("quantities", path)
    assert shown.code == 2
    assert "window" in shown.err
    for picture in ("film.gif", "last.png"):
        made = mosaicdd("plot", path, "--problem", 1, "-o", common_path / picture)
        assert made.code == 0
        assert (common_path / picture).is_file()
    assert mosaicdd("report", path, "-o", common_path / "page.html").code == 0
    assert mosaicdd("plot", path, "--problem", 2).code == 2
