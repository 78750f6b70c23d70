"""Nonlinear equations on the command line: solved, compared, and refused where they are not sound."""

import json
import signal
import subprocess
import sys
import time

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


@pytest.mark.ranks(1, 3)
@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("k=expr:1+v", "the field k: expression '1+v': v is not allowed; known: u, pi,"),
        ("k=expr:u-2", "a coefficient that depends on the solution is not positive there"),
        ("a=-1", "quasilinear-diffusion needs a > 0, got -1"),
        ("b=1", "quasilinear-diffusion has no field 'b'; it has: a, c, k, f"),
        ("a=expr:x-1", "the field a must be positive everywhere"),
    ],
)
def test_unsound_fields(mosaicdd, common_path, field, message):
    done = mosaicdd(*SOLVE, "-o", common_path / "out.h5", "--field", field)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert message in line


def test_a_nan_in_a_file_on_one_rank(mosaicdd, tmp_path):
    a = np.ones((65, 97))
    a[60, 90] = np.nan
    np.save(tmp_path / "a.npy", a)
    field = f"a={tmp_path / 'a.npy'}"
    done = mosaicdd(*SOLVE, "-o", tmp_path / "out.h5", "--field", field)
    assert done.code == 2
    assert "1 of" in done.err
    assert "not finite" in done.err


def test_no_data_are_generated_for_networks_yet(mosaicdd, tmp_path):
    done = mosaicdd("generate", tmp_path / "d.h5", "--pde", "poisson-boltzmann", "--samples", "9")
    assert done.code == 2
    assert "poisson-boltzmann is not linear" in done.err


def test_a_signal_keeps_a_checkpoint_and_resume_goes_on(tmp_path):
    output = tmp_path / "out.h5"
    command = [sys.executable, "-m", "mosaicdd.cli.main", *SOLVE, "-o", output]
    command += ["--cells", "512x512", "--field", "f=30", "--rtol", "1e-11", "--json"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    job = subprocess.Popen([*command, "--checkpoint-minutes", "0.0001"], **options)
    checkpoint = output.with_suffix(".h5.checkpoint")
    while not checkpoint.exists() and job.poll() is None:
        time.sleep(0.01)
    job.send_signal(signal.SIGTERM)
    out, err = job.communicate(timeout=60)
    part = json.loads(out)
    assert (job.returncode, part["status"]) == (1, "interrupted"), err
    assert checkpoint.exists()
    done = subprocess.run([*command, "--resume"], **options, timeout=100, check=False)
    rest = json.loads(done.stdout)
    assert (done.returncode, rest["status"]) == (0, "converged_rtol"), done.stderr
    assert rest["iterations"] > part["iterations"]
    assert not checkpoint.exists()
    with h5py.File(output) as file:
        assert np.isfinite(file["solution"][()]).all()
