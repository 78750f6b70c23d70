"""An equation of the user's own, in one file outside of the package: from data to a certified answer."""

import pytest

HELMHOLTZ = """
from mosaicdd import EllipticOperator, Equation

HELMHOLTZ = Equation(
    name="helmholtz",
    text="-lap u - k^2 u = f",
    parameters={"k": 1.0},
    operator=lambda k: EllipticOperator(c=-(k**2)),
    draw=lambda rng: {"k": 3.0 * rng.uniform()},
)
"""
SQUARE = "--cells 8 --size 0.125 --windows 20"
OWN = "--pde waves.py:HELMHOLTZ"


@pytest.fixture(autouse=True)
def _equation(tmp_path):
    (tmp_path / "waves.py").write_text(HELMHOLTZ)


def test_data_training_and_a_certified_solve(succeed, report_of):
    succeed(f"generate d.h5 {OWN} --field k=2 --samples 400 {SQUARE}")
    assert report_of("info d.h5")["pde"] == "helmholtz"
    succeed(f"train d.h5 -o m.h5 {OWN} --epochs 5 --batch-size 60 --set width=32")
    assert report_of("info m.h5")["card"]["parameters"] == {"k": 2.0}
    problem = f"{OWN} --field k=2 --field f=1 --cells 64x64 --boundary 'expr:sin(3*x)'"
    solved = report_of(f"solve -o out.h5 {problem} --local-solver m.h5 --certify 1e-10")
    assert solved["local_solver"] == "m.h5"


def test_a_family_of_it_serves_its_range(succeed, refuse):
    succeed(f"generate d.h5 {OWN} --samples 768 {SQUARE}")
    network = "--network family --set modes=3 --set hidden=16 --epochs 100"
    succeed(f"train d.h5 -o m.h5 {OWN} {network}")
    solve = f"solve -o out.h5 {OWN} --cells 64x64 --local-solver m.h5 --boundary expr:x"
    succeed(f"{solve} --field k=2.2")
    refuse(f"{solve} --field k=4", "with c from -9 to 0, here it is -16")


def test_data_that_do_not_serve_are_refused_before_any_work(succeed, refuse, monkeypatch):
    monkeypatch.setattr("mosaicdd.problems.equations._own", {})
    succeed(f"generate d.h5 {OWN} --samples 400 {SQUARE}")
    few = (
        "Error: 32 modes need 33 operators of 32 samples each to train on, the dataset's 400 samples "
        "hold 11; generate at least 1175, or set modes=10\n"
    )
    refuse(f"train d.h5 -o m.h5 {OWN} --network family", few)
    monkeypatch.setattr("mosaicdd.problems.equations._own", {})
    refuse("train d.h5 -o m.h5", "unknown pde 'helmholtz'")  # without its file
    bad = HELMHOLTZ.replace('{"k": 3.0 * rng.uniform()}', "3").replace("helmholtz", "bad-draw")
    line = "Error: draw of the equation bad-draw must give parameters by name"
    words = f"generate e.h5 --pde bad.py:HELMHOLTZ --samples 400 {SQUARE}"
    refuse(words, line, {"bad.py": bad})
