"""Nonlinear equations on the command line: solved, compared, and refused where they are not sound."""

import signal

import h5py
import numpy as np
import pytest

SOLVE = ("solve", "--cells", "96x64", "--pde", "quasilinear-diffusion", "--boundary", "expr:sin(x)")


@pytest.mark.ranks(1, 2)
def test_a_function_of_the_solution_is_kept_for_compare(comm, mosaicdd, common_path, strict_json):
    output = common_path / "out.h5"
    done = mosaicdd(*SOLVE, "-o", output, "--field", "k=expr:2+u", "--rtol", "1e-10", "--json")
    assert done.code == 0, done.err
    report = strict_json(done.out)
    assert report["accelerate"] == "newton"
    assert report["discrete_residual"] <= 1e-10
    if comm.size == 1:
        done = mosaicdd("compare", output, "--reference", "direct", "--json")
        assert strict_json(done.out)["max_error"] < 1e-8


FLAT = ("--cells", "48x32", "--spacing", "25x10", "--boundary", "expr:20 - x/100")


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("pde", ["quasilinear-diffusion", "minimal-surface"])
def test_cells_that_are_no_squares(comm, mosaicdd, common_path, strict_json, pde):
    output = common_path / "out.h5"
    sides = "--side", "top=neumann:0", "--side", "bottom=robin:0.02,0.3"
    done = mosaicdd("solve", "-o", output, "--pde", pde, *FLAT, *sides, "--rtol", "1e-10", "--json")
    assert done.code == 0, done.err
    assert strict_json(done.out)["status"] == "converged_rtol"
    if comm.size == 1:
        done = mosaicdd("compare", output, "--reference", "direct", "--json")
        assert strict_json(done.out)["max_error"] < 1e-6


def test_a_minimal_surface(mosaicdd, tmp_path, strict_json):
    output = tmp_path / "out.h5"
    given = ("--cells", "64x96", "--pde", "minimal-surface", "--boundary", "expr:sin(3*x)*y")
    done = mosaicdd("solve", "-o", output, *given, "--certify", "1e-10", "--json")
    assert done.code == 0, done.err
    assert strict_json(done.out)["discrete_residual"] <= 1e-10
    done = mosaicdd("compare", output, "--reference", "direct", "--json")
    assert strict_json(done.out)["max_error"] < 1e-8


def test_a_signal_keeps_a_checkpoint_and_resume_goes_on(mosaicdd, signalled, tmp_path, strict_json):
    output = tmp_path / "out.h5"
    larger = ("--cells", "160x160", "--field", "f=100", "--rtol", "1e-11")
    command = (*SOLVE, "-o", output, *larger, "--json")
    done = signalled(signal.SIGTERM, *command)
    part = strict_json(done.out)
    assert (done.code, part["status"]) == (1, "interrupted"), done.err
    checkpoint = output.with_suffix(".h5.checkpoint")
    assert checkpoint.exists()
    done = mosaicdd(*command, "--resume")
    rest = strict_json(done.out)
    assert (done.code, rest["status"]) == (0, "converged_rtol"), done.err
    assert rest["iterations"] > part["iterations"]
    assert not checkpoint.exists()
    with h5py.File(output) as file:
        assert np.isfinite(file["solution"][()]).all()
