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


@pytest.mark.ranks(1, 2, 3)
def test_a_random_medium_of_a_wrong_setting_is_refused_in_one_line(mosaicdd, common_path):
    done = mosaicdd(*SOLVE, "-o", common_path / "o.h5", "--field", "a=lognormal:contrast=0")
    assert done.code == 2
    assert "lognormal:contrast must be in [1, 1e+12), got 0" in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_compare_takes_the_medium_from_the_file(mosaicdd, write, tmp_path, strict_json):
    a = np.exp(3 * np.random.default_rng(0).standard_normal(CELLS))
    output = tmp_path / "out.h5"
    assert mosaicdd(*SOLVE, "-o", output, "--field", f"a={write('a.npy', a)}").code == 0
    done = mosaicdd("compare", output, "--reference", "direct", "--json")
    assert done.code == 0, done.err
    assert strict_json(done.out)["max_error"] < 1e-7


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a[:50], "the field a has the shape (50, 160), the grid has (129, 161) nodes"),
        (lambda a: np.where(a == a.max(), np.nan, a), "not finite"),
        (lambda a: np.where(a == a.max(), 0.0, a), "the field a must be positive everywhere"),
        (lambda a: np.where(a == a.max(), -2.0, a), "the first is -2 at"),
        (lambda a: a.astype(complex), "must hold real numbers, got complex128"),
    ],
    ids=["shape", "NaN", "zero", "negative", "complex"],
)
def test_coefficients_that_are_not_sound_are_refused_in_one_line(
    mosaicdd, write, common_path, change, message
):
    a = change(np.random.default_rng(0).uniform(1, 2, CELLS))
    output = common_path / "out.h5"
    done = mosaicdd(*SOLVE, "-o", output, "--field", f"a={write('a.npy', a)}")
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not output.exists()


@pytest.mark.ranks(1, 2, 3)
def test_a_truncated_file_is_refused(comm, mosaicdd, write, common_path):
    path = write("a.npy", np.ones(CELLS))
    if comm.rank == 0:
        path.write_bytes(path.read_bytes()[:1000])
    comm.Barrier()
    done = mosaicdd(*SOLVE, "-o", common_path / "out.h5", "--field", f"a={path}")
    assert done.code == 2
    assert "a.npy" in done.err
    assert len(done.err.strip().splitlines()) == 1


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


@pytest.mark.ranks(1, 2, 3)
def test_a_velocity_that_is_not_finite_on_one_rank_is_refused_in_one_line(
    mosaicdd, write, common_path
):
    b = np.ones([n + 1 for n in CELLS])
    b[-3, -3] = np.nan
    path, output = write("b.npy", b), common_path / "out.h5"
    done = mosaicdd(*FLOW, "-o", output, "--field", f"bx={path}", "--field", "by=expr:x")
    assert done.code == 2
    assert "the field bx has" in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_tensor_beside_a_is_refused_in_one_line(mosaicdd, tmp_path):
    done = mosaicdd(*SOLVE, "-o", tmp_path / "o.h5", "--field", "a=2", "--field", "axx=expr:1+x")
    assert done.code == 2
    assert "takes the field a, or axx and ayy instead, got a and axx" in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_network_is_refused_in_a_medium(mosaicdd, tmp_path):
    done = mosaicdd(
        *SOLVE, "-o", tmp_path / "o.h5", "--field", "a=expr:1+x", "--local-solver", "laplace"
    )
    assert done.code == 2
    assert "take 'exact'" in done.err
