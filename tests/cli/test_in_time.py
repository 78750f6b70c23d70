"""``solve --steps`` as users and batch systems see it: series, pictures, interruptions."""

import json
import shlex
import signal
import sys
import time

import h5py
import numpy as np
import pytest
from forked import Forked, run

import mosaicdd as m
from mosaicdd.time.checkpoint import TimeCheckpoint

HEAT = (
    "--pde heat --cells 96x64 --boundary expr:0 --initial 'expr:sin(3*x)*y' "
    "--field 'f=expr:20*exp(-9*((x-0.7-0.4*cos(5*t))**2+(y-0.5)**2))'"
)
LONG = f"solve -o out.h5 --json {HEAT} --dt 0.002 --steps 24 --every 6"


@pytest.fixture
def series(succeed, common_path):
    """Return the file of a short series."""
    succeed(f"solve -o heat.h5 {HEAT} --dt 0.05 --steps 6 --every 2")
    return common_path / "heat.h5"


@pytest.mark.usefixtures("quick_layout")
def test_a_series_is_opened_compared_and_drawn(series, report_of, refuse):
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
    report = report_of("compare heat.h5 --reference expr:t*x")
    difference = np.abs(opened.field - opened.time * opened.x)
    assert (report["time"], report["max_error"]) == (opened.time, difference.max())
    report = report_of("compare heat.h5 --reference heat.h5 --problem 1")
    assert report["max_error"] == 0.0
    refuse("compare heat.h5 --reference direct", "compare a series with 'expr:...'")


@pytest.mark.usefixtures("quick_layout")
def test_a_series_moves_in_a_gif_and_in_pictures(series, succeed, refuse):
    succeed("plot heat.h5 -o heat.gif")
    assert series.with_suffix(".gif").read_bytes()[:6] == b"GIF89a"
    succeed("plot heat.h5 -o heat-%02d.png")
    pictures = sorted(series.parent.glob("heat-*.png"))
    assert [path.name for path in pictures] == [f"heat-0{i}.png" for i in range(4)]
    assert len({path.read_bytes() for path in pictures}) == 4
    succeed("plot heat.h5")
    refuse("plot heat.h5 -o heat%.png", "heat%.png")


@pytest.mark.usefixtures("quick_layout")
def test_a_series_in_space_is_solved_shown_and_played(succeed, refuse, tmp_path):
    given = "--cells 20x18x16 --spacing 0.05 --pde heat --initial expr:z*x --steps 2 --dt 0.1"
    sides = "--boundary 'expr:x*z + t' --side back=neumann:expr:t*y"
    out = succeed(f"solve -o box.h5 {given} {sides}")
    assert "heat on 20x18x16 cells by exact and bdf2, 1 rank (1x1x1)" in out
    assert m.read("box.h5").to_xarray().shape == (3, 17, 19, 21)
    succeed("plot box.h5 -o box-%d.png --plane y=0.3")
    assert len(list(tmp_path.glob("box-*.png"))) == 3
    refuse("plot box.h5 -o box-%d.png --plane y=7", "beside the field")
    vtk = pytest.importorskip("vtkmodules.vtkIOHDF")
    reader = vtk.vtkHDFReader()
    reader.SetFileName("box.h5")
    reader.SetStep(2)
    reader.Update()
    shown = reader.GetOutput()
    assert shown.GetDimensions() == (21, 19, 17)
    value = shown.GetPointData().GetArray("solution").GetTuple1(shown.ComputePointId([3, 5, 7]))
    assert value == m.read("box.h5").field[7, 5, 3]


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
def test_the_file_holds_the_series_of_the_library_whatever_the_ranks(report_of, common_path, comm):
    options = "--dt 0.05 --steps 3 --solver-share 0 --rtol 1e-11"
    report = report_of(f"solve -o out.h5 {HEAT} {options}")
    assert (report["status"], report["ranks"], report["frames"]) == ("converged_rtol", comm.size, 4)
    source = {"f": "20*exp(-9*((x-0.7-0.4*cos(5*t))**2+(y-0.5)**2))"}
    problem = m.Problem((64, 96), "heat", source, m.Dirichlet())
    settings = m.SolveSettings(rtol=1e-11)
    same = m.march(problem, "sin(3*x)*y", dt=0.05, steps=3, solver_share=0, settings=settings)
    stored = m.read(common_path / "out.h5").series()
    np.testing.assert_allclose(stored, list(same), rtol=0, atol=1e-10)
    assert [path.name for path in common_path.iterdir()] == ["out.h5"]
    comm.Barrier()


@pytest.fixture
def kill(tmp_path):
    """Return a function that starts ``solve`` and kills it after the first checkpoint."""

    def start():
        words = shlex.split(f"mosaicdd {LONG} --checkpoint-minutes 0.0001")
        job = Forked(words, tmp_path)
        while not (tmp_path / "out.h5.checkpoint").exists() and job.poll() is None:
            time.sleep(0.01)
        job.send_signal(signal.SIGKILL)
        job.communicate()
        assert job.returncode == -signal.SIGKILL
        (tmp_path / ".out.h5.checkpoint.0123abcd.part").write_text(
            "as if killed while it was written"
        )

    return start


def arrays(path):
    with h5py.File(path) as file:
        return {name: file[name][()] for name in ("solution", "time", "history/time_error")}


@pytest.fixture
def whole(succeed, tmp_path):
    """Return the contents of the file of a march that nothing interrupts."""
    succeed(LONG)
    (tmp_path / "out.h5").rename(tmp_path / "whole.h5")
    return arrays(tmp_path / "whole.h5")


def require_the_same_bits(succeed, whole, tmp_path):
    assert json.loads(succeed(f"{LONG} --resume"))["steps"] == 24
    for name, values in arrays(tmp_path / "out.h5").items():
        np.testing.assert_array_equal(values, whole[name])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.h5", "whole.h5"]


def test_what_was_interrupted_goes_on_to_the_same_bits(
    signalled, refuse, whole, succeed, tmp_path, strict_json
):
    ended = signalled(signal.SIGTERM, LONG, checkpoints=TimeCheckpoint)
    part = strict_json(ended.out)
    assert (ended.code, part["status"]) == (1, "interrupted"), ended.err
    assert len(m.read(tmp_path / "out.h5").times) == part["frames"] < len(whole["time"])
    refuse(f"{LONG} --resume --rtol 1e-10 --dt 0.004", "its dt is 0.002, not 0.004")
    require_the_same_bits(succeed, whole, tmp_path)


def test_what_was_killed_goes_on(kill, whole, succeed, tmp_path):
    kill()
    require_the_same_bits(succeed, whole, tmp_path)


@pytest.mark.nightly
@pytest.mark.limit(300)
def test_what_was_killed_goes_on_on_three_ranks(kill, whole, tmp_path, mpiexec):
    kill()
    words = shlex.split(LONG)
    command = sys.executable, "-m", "mosaicdd.cli.main", *words, "--resume"
    code, rest, err = run(command, launcher=(mpiexec, "-n", "3"))
    assert (code, rest["ranks"], rest["steps"]) == (0, 3, 24), err
    field = arrays(tmp_path / "out.h5")["solution"]
    np.testing.assert_allclose(field, whole["solution"], rtol=0, atol=1e-6)
