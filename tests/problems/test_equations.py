"""Equations by name and from files of the user's own; their operators."""

import re

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.problems.equations import EQUATIONS, equation, find_equation
from mosaicdd.problems.equations.linear import tensor

OPERATOR = "lambda k: EllipticOperator(c=-(k**2))"
OWN = """
NOT_ONE = 3
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.equations.linear import Equation

OWN = Equation(
    name="{name}", text="-lap u - k^2 u = f", parameters={{"k": 1.0}},
    operator=lambda k: EllipticOperator(c=-(k**2)),
)
"""


@pytest.mark.parametrize("name", EQUATIONS)
def test_every_equation_has_an_operator_for_its_defaults_and_for_what_it_draws(name):
    one = equation(name)
    assert isinstance(one.at(), m.EllipticOperator)
    if one.draw is not None:
        rng = np.random.default_rng(0)
        for _ in range(50):
            assert set(one.draw(rng)) <= set(one.parameters)
            assert isinstance(one.at(**one.draw(rng)), m.EllipticOperator)


def test_a_tensor_has_the_eigenvalues_and_the_axis_that_were_asked_for():
    fields = tensor(9.0, 0.4)
    matrix = np.array([[fields["axx"], fields["axy"]], [fields["axy"], fields["ayy"]]])
    values, vectors = np.linalg.eigh(matrix)
    np.testing.assert_allclose(values, [1 / 3, 3], rtol=1e-14)
    assert np.arctan(vectors[1, 1] / vectors[0, 1]) == pytest.approx(0.4, rel=1e-14)


def test_an_equation_from_a_file_is_known_by_its_name_from_then_on(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN.format(name="own-waves"))
    found = find_equation(f"{path}:OWN")
    assert found.at(k=2.0) == m.EllipticOperator(c=-4.0)
    assert equation("own-waves") is found


@pytest.mark.parametrize(
    ("part", "instead", "message"),
    [
        ("OWN = ", "OWN = NOT_ONE or ", "is no Equation .*, but int"),
        ("OWN = ", "OTHER = ", "cannot be imported: .*OWN"),
        ("{name}", "laplace", "needs a name of its own, 'laplace' is taken"),
        ("operator=", "operators=", "cannot be imported: .*operator"),
        (OPERATOR, "lambda k: k", "operator must give an EllipticOperator, got float"),
        (OPERATOR, "lambda q: q", r"operator must take the parameters \(k\), it takes \(q\)"),
        (OWN, "syntax error", "cannot be imported"),
        (OWN, "import sys; sys.exit(0)", "cannot be imported: .*own.py calls exit"),
        ('"{name}"', "3", "name must be a text, got 3"),
        ('"-lap u - k^2 u = f"', "None", "text must be a text, got None"),
        ('{{"k": 1.0}}', '["k"]', r"parameters must map names to numbers, got \['k'\]"),
        ("1.0", "'3'", "the default of k must be a number, got '3'"),
    ],
)
def test_an_own_equation_that_lacks_something_is_refused_in_one_sentence(
    part, instead, message, tmp_path
):
    path = tmp_path / "own.py"
    path.write_text(OWN.replace(part, instead).format(name="x"))
    with pytest.raises(ValueError, match=message) as refused:
        find_equation(f"{path}:OWN")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda rng: 3, "must give parameters by name, as in {'k': 1.0}, got 3"),
        (lambda rng: {"z": 1.0}, "gave {'z': 1.0}: own has no field 'z'"),
        (lambda rng: {"k": float("nan")}, "gave {'k': nan}: the coefficient c must be finite"),
        (lambda rng: {}["k"], "ends in KeyError: 'k'"),
    ],
)
def test_a_draw_that_gives_no_parameters_is_refused_in_one_sentence(draw, message):
    own = m.Equation("own", "", lambda k: m.EllipticOperator(c=k), {"k": 1.0}, draw=draw)
    with pytest.raises(ValueError, match="draw of the equation own " + re.escape(message)):
        own.drawn(np.random.default_rng(0))


def test_a_file_that_is_missing_is_refused():
    with pytest.raises(ValueError, match=r"there is no file nowhere\.py"):
        find_equation("nowhere.py:OWN")


@pytest.mark.parametrize("peclet", [1e-6, 0.1, 1.0, 10.0, 1000.0])
def test_flows_of_any_strength_have_no_wiggles(peclet):
    weights = m.EllipticOperator(bx=peclet, by=-0.3 * peclet).stencil(1.0)
    neighbours = weights[[0, 1, 1, 2], [1, 0, 2, 1]]
    assert (neighbours <= 0).all()  # an M-matrix: a discrete maximum principle
    np.testing.assert_allclose(weights.sum(), 0, atol=1e-12 * weights.max())


def test_the_fitted_stencil_is_exact_for_the_layer_of_a_flow():
    operator, spacing = m.EllipticOperator(bx=40.0), 0.1
    x = spacing * np.arange(3)
    layer = np.exp(40.0 * (x - x[-1]))  # -u'' + 40 u' = 0
    applied = operator.stencil(spacing)[1] - np.array([0.0, 2.0, 0.0])  # without the part along y
    np.testing.assert_allclose(applied @ layer, 0, atol=1e-14)


@pytest.mark.parametrize(
    "operator",
    [
        m.EllipticOperator(axx=3.0, axy=1.0),
        m.EllipticOperator(),
        m.EllipticOperator(ayy=9.0, axy=-2.0),
    ],
)
def test_exact_polynomials_solve_the_discrete_equation_up_to_degree_3(operator):
    y, x = np.meshgrid(np.linspace(-1, 1, 9), np.linspace(-1, 1, 9), indexing="ij")
    fields = operator.exact_polynomials(3, y, x)
    weights = operator.stencil(0.25)
    total = sum(
        weights[dy, dx] * fields[dy : dy + 7, dx : dx + 7] for dy in range(3) for dx in range(3)
    )
    # Sums of nine values below 10.
    np.testing.assert_allclose(total, 0, atol=1e-13)
