"""A network of random weights: never exit code 0, unless certified, and then a right answer."""

import numpy as np
import pytest
from factorised import factorised

import mosaicdd as m
from mosaicdd import read
from mosaicdd.schwarz.local_solvers.loading import SHIPPED
from mosaicdd.storage.model_file import read_model, write_model

ROUGH = "gp:seed=0,amplitude=0,noise=1"
SMOOTH = "gp:seed=0"
DATA = (SMOOTH, ROUGH, "expr:x*x-y*y")  # the lifting alone solves the last


@pytest.fixture
def untrained(tmp_path):
    """Return a function: the file of a shipped model with its weights drawn anew."""

    def write(name, seed):
        card, weights = read_model(SHIPPED / f"{name}.h5")
        rng = np.random.default_rng(seed)
        drawn = {
            key: (values.std() * rng.standard_normal(values.shape)).astype(np.float32)
            for key, values in weights.items()
        }
        path = tmp_path / f"{name}-{seed}.h5"
        write_model(path, card, drawn)
        return path

    return write


@pytest.mark.limit(60)
@pytest.mark.parametrize("boundary", DATA)
@pytest.mark.parametrize("name", ["laplace", "laplace-sdnet"])
def test_without_a_certificate_it_never_ends_with_0(name, boundary, untrained, mosaicdd, tmp_path):
    for seed in range(3):
        model = untrained(name, seed)
        for method in ((), ("--accelerate", "anderson"), ("--levels", "1", "--rtol", "0.1")):
            ended = mosaicdd(
                *("solve", "-o", tmp_path / "out.h5", "--cells", "96x128", "--json"),
                *("--local-solver", model, "--boundary", boundary, *method),
            )
            assert ended.code in (1, 2)
            assert "Traceback" not in ended.err


@pytest.mark.limit(60)
@pytest.mark.parametrize("boundary", DATA)
@pytest.mark.parametrize("name", ["laplace", "laplace-sdnet"])
def test_with_a_certificate_its_answer_is_right(name, boundary, untrained, mosaicdd, tmp_path):
    output = tmp_path / "out.h5"
    ended = mosaicdd(
        *("solve", "-o", output, "--cells", "96x128", "--max-iterations", "20"),
        *("--certify", "1e-10", "--local-solver", untrained(name, 0), "--boundary", boundary),
    )
    assert ended.code == 0, ended.err
    solution = read(output)
    truth = factorised(m.Problem(solution.boundary.shape, "laplace", sides=solution.boundary))
    # |u - v| <= |A^-1| |b| rtol, with |A^-1| = 1 / (2 pi^2) 96^2 at most and |b| of 450 values.
    size = np.sqrt(450) * np.abs(truth).max()
    assert np.linalg.norm(solution.field - truth) <= 96**2 / (2 * np.pi**2) * size * 1e-10
