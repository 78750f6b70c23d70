"""Coefficients in files: ``solve``, what its file holds, ``compare``, and input that is not sound."""

import h5py
import numpy as np
import pytest

CELLS = (128, 160)
SOLVE = ("solve", "--cells", "160x128", "--pde", "diffusion", "--rtol", "1e-10")


@pytest.fixture
def write(comm, common_path):
    """Return a function that writes an array to a file, once for all ranks."""

    def write(name, array):
        if comm.rank == 0:
            np.save(common_path / name, array)
        comm.Barrier()
        return common_path / name

    return write


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("extra", [0, 1], ids=["cells", "nodes"])
def test_a_file_of_coefficients_is_solved_and_kept(
    comm, mosaicdd, write, common_path, strict_json, extra
):
    rng = np.random.default_rng(0)
    a = np.exp(3 * rng.standard_normal([n + extra for n in CELLS]))
    f = rng.standard_normal([n + 1 for n in CELLS])
    output = common_path / "out.h5"
    fields = [f"a={write('a.npy', a)}", f"f={write('f.npy', f)}", "c=expr:1+x"]
    options = [word for field in fields for word in ("--field", field)]
    done = mosaicdd(*SOLVE, "-o", output, *options, "--json")
    assert done.code == 0, done.err
    report = strict_json(done.out)
    assert report["status"] == "converged_rtol"
    assert report["accelerate"] == "cg"
    assert report["parameters"]["a"].endswith("a.npy")
    assert report["discrete_residual"] <= 1e-10
    if comm.rank == 0:
        with h5py.File(output) as file:
            np.testing.assert_array_equal(file["fields/a"], a)
            np.testing.assert_array_equal(file["fields/f"], f)
            assert file["fields/c"].shape == f.shape


def test_compare_takes_the_medium_from_the_file(mosaicdd, write, tmp_path, strict_json):
    a = np.exp(3 * np.random.default_rng(0).standard_normal(CELLS))
    output = tmp_path / "out.h5"
    assert mosaicdd(*SOLVE, "-o", output, "--field", f"a={write('a.npy', a)}").code == 0
    done = mosaicdd("compare", output, "--reference", "direct", "--json")
    assert done.code == 0, done.err
    assert strict_json(done.out)["max_error"] < 1e-7


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a[:50], "the field a has the shape (50, 160), the grid has (129, 161) nodes"),
        (lambda a: np.where(a == a.max(), np.nan, a), "not finite"),
        (lambda a: np.where(a == a.max(), 0.0, a), "the field a must be positive everywhere"),
    ],
    ids=["shape", "NaN", "zero"],
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


def test_a_truncated_file_is_refused(mosaicdd, write, tmp_path):
    path = write("a.npy", np.ones(CELLS))
    path.write_bytes(path.read_bytes()[:1000])
    done = mosaicdd(*SOLVE, "-o", tmp_path / "out.h5", "--field", f"a={path}")
    assert done.code == 2
    assert "a.npy" in done.err


def test_a_network_is_refused_in_a_medium(mosaicdd, tmp_path):
    done = mosaicdd(
        *SOLVE, "-o", tmp_path / "o.h5", "--field", "a=expr:1+x", "--local-solver", "laplace"
    )
    assert done.code == 2
    assert "take 'exact'" in done.err
