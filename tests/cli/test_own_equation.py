"""An equation of the user's own, in one file outside of the package: from data to a certified answer."""

import json

import pytest

from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.storage.model_file import read_model

HELMHOLTZ = """
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.equations.linear import Equation

HELMHOLTZ = Equation(
    name="helmholtz",
    text="-lap u - k^2 u = f",
    parameters={"k": 1.0},
    operator=lambda k: EllipticOperator(c=-(k**2)),
    draw=lambda rng: {"k": 3.0 * rng.uniform()},
)
"""
SQUARE = ("--cells", 8, "--size", 0.125, "--windows", 20)


@pytest.fixture
def pde(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "waves.py").write_text(HELMHOLTZ)
    return "waves.py:HELMHOLTZ"


def test_data_training_and_a_certified_solve(pde, mosaicdd, tmp_path):
    made = mosaicdd(
        *("generate", "d.h5", "--pde", pde, "--field", "k=2", "--samples", 400), *SQUARE
    )
    assert made.code == 0, made.err
    assert Dataset.read("d.h5").pde == "helmholtz"
    training = ("train", "d.h5", "-o", "m.h5", "--pde", pde, "--epochs", 5, "--batch-size", 60)
    trained = mosaicdd(*training, "--set", "width=32")
    assert trained.code == 0, trained.err
    assert read_model("m.h5")[0].parameters == {"k": 2.0}
    problem = ("--pde", pde, "--field", "k=2", "--field", "f=1", "--cells", "64x64")
    solved = mosaicdd(
        *("solve", "-o", "out.h5", *problem, "--local-solver", "m.h5"),
        *("--boundary", "expr:sin(3*x)", "--certify", "1e-10", "--json"),
    )
    assert solved.code == 0, solved.err
    assert json.loads(solved.out)["local_solver"] == "m.h5"


def test_a_family_of_it_serves_its_range(pde, mosaicdd):
    assert mosaicdd("generate", "d.h5", "--pde", pde, "--samples", 768, *SQUARE).code == 0
    network = ("--network", "family", "--set", "modes=3", "--set", "hidden=16", "--epochs", 100)
    trained = mosaicdd("train", "d.h5", "-o", "m.h5", "--pde", pde, *network)
    assert trained.code == 0, trained.err
    solve = ("solve", "-o", "out.h5", "--pde", pde, "--cells", "64x64", "--local-solver", "m.h5")
    assert mosaicdd(*solve, "--field", "k=2.2", "--boundary", "expr:x").code == 0
    refused = mosaicdd(*solve, "--field", "k=4", "--boundary", "expr:x")
    assert refused.code == 2
    assert "with c from -9 to 0, here it is -16" in refused.err


def test_a_family_of_too_few_samples_is_refused_before_any_work(pde, mosaicdd):
    assert mosaicdd("generate", "d.h5", "--pde", pde, "--samples", 400, *SQUARE).code == 0
    ended = mosaicdd("train", "d.h5", "-o", "m.h5", "--pde", pde, "--network", "family")
    assert ended.code == 2
    assert ended.err == (
        "Error: 32 modes need 33 operators of 32 samples each to train on, the dataset's 400 samples "
        "hold 11; generate at least 1175, or set modes=10\n"
    )


def test_a_draw_that_gives_no_parameters_is_one_line_before_any_work(pde, mosaicdd, tmp_path):
    bad = HELMHOLTZ.replace('{"k": 3.0 * rng.uniform()}', "3").replace("helmholtz", "bad-draw")
    (tmp_path / "bad.py").write_text(bad)
    ended = mosaicdd("generate", "d.h5", "--pde", "bad.py:HELMHOLTZ", "--samples", 400, *SQUARE)
    assert ended.code == 2
    assert ended.err.startswith("Error: draw of the equation bad-draw must give parameters by name")
    assert ended.err.count("\n") == 1
    assert not list(tmp_path.glob("d.h5*"))


def test_without_its_file_the_data_s_equation_is_not_known(pde, mosaicdd, monkeypatch):
    monkeypatch.setattr("mosaicdd.problems.equations._own", {})
    assert mosaicdd("generate", "d.h5", "--pde", pde, "--samples", 400, *SQUARE).code == 0
    monkeypatch.setattr("mosaicdd.problems.equations._own", {})
    ended = mosaicdd("train", "d.h5", "-o", "m.h5")
    assert ended.code == 2
    assert "unknown pde 'helmholtz'" in ended.err
