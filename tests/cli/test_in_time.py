"""``solve --steps`` as users and batch systems see it: series, pictures, interruptions."""

import signal
import sys
import time

import h5py
import numpy as np
import pytest
from forked import Forked, run

import mosaicdd as m
from mosaicdd.time.checkpoint import TimeCheckpoint

COMMAND = (sys.executable, "-m", "mosaicdd.cli.main", "solve", "--json")
HEAT = (
    *("--pde", "heat", "--cells", "96x64", "--boundary", "expr:0", "--initial", "expr:sin(3*x)*y"),
    *("--field", "f=expr:20*exp(-9*((x-0.7-0.4*cos(5*t))**2+(y-0.5)**2))"),
)
SOLVE = ("solve", "--json")
LONG = (*HEAT, "--dt", "0.002", "--steps", "24", "--every", "6")


@pytest.fixture
def series(mosaicdd, common_path):
    """Return the file of a short series."""
    path = common_path / "heat.h5"
    ended = mosaicdd("solve", "-o", path, *HEAT, "--dt", "0.05", "--steps", "6", "--every", "2")
    assert (ended.code, ended.err) == (0, "")
    return path


@pytest.mark.usefixtures("quick_layout")
def test_a_series_is_opened_compared_and_drawn(series, mosaicdd, strict_json):
    opened = m.read(series)
    np.testing.assert_allclose(opened.times, [0, 0.1, 0.2, 0.3])
    assert opened.time == opened.times[-1]
    assert m.read(series, 1).time == opened.times[1]
    labelled = opened.to_xarray()
    assert labelled.dims == ("time", "y", "x")
    np.testing.assert_array_equal(labelled[-1], opened.field)
    np.testing.assert_array_equal(labelled.time, opened.times)
    nearest = labelled.sel(time=0.2, y=0.5, x=0.75, method="nearest")
    assert float(nearest) == m.read(series, 2).field[32, 48]
    assert len(opened.history["time_error"]) == 6
    ended = mosaicdd("compare", series, "--reference", "expr:t*x", "--json")
    report = strict_json(ended.out)
    difference = np.abs(opened.field - opened.time * opened.x)
    assert (report["time"], report["max_error"]) == (opened.time, difference.max())
    ended = mosaicdd("compare", series, "--reference", series, "--problem", "1", "--json")
    assert strict_json(ended.out)["max_error"] == 0.0
    ended = mosaicdd("compare", series, "--reference", "direct")
    assert ended.code == 2
    assert "compare a series with 'expr:...'" in ended.err


@pytest.mark.usefixtures("quick_layout")
def test_a_series_moves_in_a_gif_and_in_pictures(series, mosaicdd):
    moving, still = series.with_suffix(".gif"), series.with_name("heat-%02d.png")
    assert mosaicdd("plot", series, "-o", moving).code == 0
    assert moving.read_bytes()[:6] == b"GIF89a"
    assert mosaicdd("plot", series, "-o", still).code == 0
    pictures = sorted(series.parent.glob("heat-*.png"))
    assert [path.name for path in pictures] == [f"heat-0{i}.png" for i in range(4)]
    assert len({path.read_bytes() for path in pictures}) == 4
    assert mosaicdd("plot", series).code == 0
    ended = mosaicdd("plot", series, "-o", series.with_name("heat%.png"))
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)


@pytest.mark.usefixtures("quick_layout")
def test_a_series_in_space_is_solved_shown_and_played(mosaicdd, tmp_path):
    path, film = tmp_path / "box.h5", tmp_path / "box-%d.png"
    given = ("--cells", "20x18x16", "--spacing", "0.05", "--pde", "heat", "--initial", "expr:z*x")
    sides = ("--boundary", "expr:x*z + t", "--side", "back=neumann:expr:t*y")
    ended = mosaicdd("solve", *given, *sides, "--steps", "2", "--dt", "0.1", "-o", path)
    assert ended.code == 0, ended.err
    assert "heat on 20x18x16 cells by exact and bdf2, 1 rank (1x1x1)" in ended.out
    assert m.read(path).to_xarray().shape == (3, 17, 19, 21)
    assert mosaicdd("plot", path, "-o", film, "--plane", "y=0.3").code == 0
    assert len(list(tmp_path.glob("box-*.png"))) == 3
    ended = mosaicdd("plot", path, "-o", film, "--plane", "y=7")
    assert (ended.code, "beside the field" in ended.err) == (2, True)
    vtk = pytest.importorskip("vtkmodules.vtkIOHDF")
    reader = vtk.vtkHDFReader()
    reader.SetFileName(str(path))
    reader.SetStep(2)
    reader.Update()
    shown = reader.GetOutput()
    assert shown.GetDimensions() == (21, 19, 17)
    value = shown.GetPointData().GetArray("solution").GetTuple1(shown.ComputePointId([3, 5, 7]))
    assert value == m.read(path).field[7, 5, 3]


def test_vtk_plays_a_series_with_its_times(series):
    pytest.importorskip("vtkmodules")
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkCommonExecutionModel import vtkStreamingDemandDrivenPipeline as Pipeline
    from vtkmodules.vtkIOHDF import vtkHDFReader

    opened = m.read(series)
    reader = vtkHDFReader()
    reader.SetFileName(str(series))
    reader.UpdateInformation()
    times = reader.GetOutputInformation(0).Get(Pipeline.TIME_STEPS())
    np.testing.assert_array_equal(times, opened.times)
    for number, at in enumerate(times):
        reader.UpdateTimeStep(at)
        image = reader.GetOutput()
        assert image.GetDimensions() == (97, 65, 1)
        values = vtk_to_numpy(image.GetPointData().GetArray("solution")).reshape(65, 97)
        np.testing.assert_array_equal(values, opened.series()[number])


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_the_file_holds_the_series_of_the_library_whatever_the_ranks(
    mosaicdd, common_path, comm, strict_json
):
    options = ("--dt", "0.05", "--steps", "3", "--solver-share", "0", "--rtol", "1e-11")
    ended = mosaicdd("solve", "-o", common_path / "out.h5", *HEAT, *options, "--json")
    assert ended.code == 0, ended.err
    report = strict_json(ended.out)
    assert (report["status"], report["ranks"], report["frames"]) == ("converged_rtol", comm.size, 4)
    problem = m.Problem(
        (64, 96), "heat", {"f": "20*exp(-9*((x-0.7-0.4*cos(5*t))**2+(y-0.5)**2))"}, m.Dirichlet()
    )
    settings = m.SolveSettings(rtol=1e-11)
    same = m.march(problem, "sin(3*x)*y", dt=0.05, steps=3, solver_share=0, settings=settings)
    stored = m.read(common_path / "out.h5").series()
    np.testing.assert_allclose(stored, list(same), rtol=0, atol=1e-10)
    assert [path.name for path in common_path.iterdir()] == ["out.h5"]
    comm.Barrier()


def kill(output, *arguments):
    """Start ``solve`` and kill it after the first checkpoint."""
    command = ["mosaicdd", *SOLVE, "-o", output, *arguments, "--checkpoint-minutes", "0.0001"]
    job = Forked(command)
    while not output.with_suffix(".h5.checkpoint").exists() and job.poll() is None:
        time.sleep(0.01)
    job.send_signal(signal.SIGKILL)
    job.communicate()
    assert job.returncode == -signal.SIGKILL


@pytest.fixture
def whole(mosaicdd, tmp_path):
    """Return the contents of the file of a march that nothing interrupts."""
    ended = mosaicdd(*SOLVE, "-o", tmp_path / "whole.h5", *LONG)
    assert (ended.code, ended.err) == (0, "")
    with h5py.File(tmp_path / "whole.h5") as file:
        return {name: file[name][()] for name in ("solution", "time", "history/time_error")}


def test_what_was_interrupted_goes_on_to_the_same_bits(
    mosaicdd, signalled, whole, tmp_path, strict_json
):
    output = tmp_path / "part.h5"
    ended = signalled(signal.SIGTERM, *SOLVE, "-o", output, *LONG, checkpoints=TimeCheckpoint)
    part = strict_json(ended.out)
    assert (ended.code, part["status"]) == (1, "interrupted"), ended.err
    assert len(m.read(output).times) == part["frames"] < len(whole["time"])
    other = ("--resume", "--rtol", "1e-10", "--dt", "0.004")
    ended = mosaicdd(*SOLVE, "-o", output, *LONG, *other)
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert "its dt is 0.002, not 0.004" in ended.err
    ended = mosaicdd(*SOLVE, "-o", output, *LONG, "--resume")
    assert (ended.code, strict_json(ended.out)["steps"]) == (0, 24), ended.err
    with h5py.File(output) as file:
        for name, values in whole.items():
            np.testing.assert_array_equal(file[name][()], values)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part.h5", "whole.h5"]


def test_what_was_killed_goes_on(mosaicdd, whole, tmp_path, strict_json):
    output = tmp_path / "part.h5"
    kill(output, *LONG)
    ended = mosaicdd(*SOLVE, "-o", output, *LONG, "--resume")
    assert (ended.code, strict_json(ended.out)["steps"]) == (0, 24), ended.err
    with h5py.File(output) as file:
        for name, values in whole.items():
            np.testing.assert_array_equal(file[name][()], values)


@pytest.mark.nightly
@pytest.mark.limit(300)
def test_what_was_killed_goes_on_on_three_ranks(mosaicdd, whole, tmp_path, mpiexec):
    output = tmp_path / "part.h5"
    kill(output, *LONG)
    code, rest, err = run(COMMAND, "-o", output, *LONG, "--resume", launcher=(mpiexec, "-n", "3"))
    assert (code, rest["ranks"], rest["steps"]) == (0, 3, 24), err
    with h5py.File(output) as file:
        np.testing.assert_allclose(file["solution"][()], whole["solution"], rtol=0, atol=1e-6)
