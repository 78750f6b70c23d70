"""Coefficients in files: ``solve``, what its file holds, ``compare``, and input that is not sound."""

import h5py
import numpy as np
import pytest

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.random_media import Lognormal

CELLS = (128, 160)
SOLVE = (
    "solve",
    "--cells",
    "160x128",
    "--pde",
    "diffusion",
    "--rtol",
    "1e-10",
    "--boundary",
    "gp:seed=0",
)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("extra", [0, 1], ids=["cells", "nodes"])
def test_a_file_of_coefficients_is_solved_and_kept(
    comm, mosaicdd, write, common_path, strict_json, extra
):
    rng = np.random.default_rng(0)
    a = np.exp(rng.standard_normal([n + extra for n in CELLS]))
    f = rng.standard_normal([n + 1 for n in CELLS])
    output = common_path / "out.h5"
    fields = [f"a={write('a.npy', a)}", f"f={write('f.npy', f)}", "c=expr:1+x"]
    options = [word for field in fields for word in ("--field", field)]
    done = mosaicdd(*SOLVE, "-o", output, *options, "--json")
    assert done.code == 0, done.err
    report = strict_json(done.out)
    assert report["status"] == "converged_rtol"
    assert report["accelerate"] == "multigrid"
    assert report["parameters"]["a"].endswith("a.npy")
    assert report["discrete_residual"] <= 1e-10
    if comm.rank == 0:
        with h5py.File(output) as file:
            np.testing.assert_array_equal(file["fields/a"], a)
            np.testing.assert_array_equal(file["fields/f"], f)
            assert file["fields/c"].shape == f.shape


@pytest.mark.ranks(1, 2, 3, 4)
def test_a_random_medium_is_the_same_on_any_ranks(comm, mosaicdd, common_path):
    output = common_path / "out.h5"
    a = "lognormal:seed=5,length=0.1,contrast=1e3"
    done = mosaicdd(*SOLVE, "-o", output, "--field", f"a={a}", "--field", "f=1")
    assert done.code == 0, done.err
    if comm.rank == 0:
        whole = tuple(slice(0, n + 1) for n in CELLS)
        expected = Lognormal(5, 0.1, 1e3).sample(Grid(CELLS, 1 / 64), whole)
        with h5py.File(output) as file:
            np.testing.assert_array_equal(file["fields/a"], expected)


def test_compare_takes_the_medium_from_the_file(mosaicdd, write, tmp_path, strict_json):
    a = np.exp(3 * np.random.default_rng(0).standard_normal(CELLS))
    output = tmp_path / "out.h5"
    assert mosaicdd(*SOLVE, "-o", output, "--field", f"a={write('a.npy', a)}").code == 0
    done = mosaicdd("compare", output, "--reference", "direct", "--json")
    assert done.code == 0, done.err
    assert strict_json(done.out)["max_error"] < 1e-7


FLOW = (*SOLVE[:3], "--pde", "advection-diffusion", "--boundary", "gp:seed=0")


@pytest.mark.ranks(1, 2, 3)
def test_a_flow_is_solved_from_expressions_files_and_numbers(
    comm, mosaicdd, write, common_path, strict_json
):
    by = np.random.default_rng(0).standard_normal([n + 1 for n in CELLS])
    output = common_path / "out.h5"
    fields = ("bx=expr:30*(1-y)", f"by={write('by.npy', by)}", "a=0.5", "c=2", "f=1")
    options = [word for field in fields for word in ("--field", field)]
    done = mosaicdd(*FLOW, "--rtol", "1e-10", "-o", output, *options, "--json")
    assert done.code == 0, done.err
    report = strict_json(done.out)
    assert (report["status"], report["accelerate"]) == ("converged_rtol", "multigrid")
    if comm.rank == 0:
        with h5py.File(output) as file:
            np.testing.assert_array_equal(file["fields/by"], by)


def test_a_flow_is_compared_with_its_direct_solution(mosaicdd, tmp_path, strict_json):
    output = tmp_path / "out.h5"
    options = ("--field", "bx=expr:30*(1-y)", "--field", "by=expr:x", "--field", "a=expr:1+x*y")
    assert mosaicdd(*FLOW, "--rtol", "1e-10", "-o", output, *options).code == 0
    done = mosaicdd("compare", output, "--reference", "direct", "--json")
    assert done.code == 0, done.err
    assert strict_json(done.out)["max_error"] < 1e-7
