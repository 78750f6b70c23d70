"""Expressions against Python's own mathematics, and what they refuse."""

import math
import warnings

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.problems.fields.expressions import Expression
from mosaicdd.problems.sides.boundary import Boundary

ONE = {
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "arcsin": math.asin,
    "arccos": math.acos,
    "arctan": math.atan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "tanh": math.tanh,
    "arcsinh": math.asinh,
    "arctanh": math.atanh,
    "exp": math.exp,
    "expm1": math.expm1,
    "log": math.log,
    "log10": math.log10,
    "log1p": math.log1p,
    "sqrt": math.sqrt,
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
}
TWO = {"arctan2": math.atan2, "fmod": math.fmod}
OPERATIONS = {
    "-x**2 + 3*y": lambda x, y: -(x**2) + 3 * y,
    "2**-x - 2**x**2": lambda x, y: 2**-x - 2 ** (x**2),
    "x/y % 0.25": lambda x, y: x / y % 0.25,
    "-x % 0.3": lambda x, y: -x % 0.3,
    "1/2 + +x": lambda x, y: 0.5 + x,
    "(x < y) + 2*(x <= y) + 4*(x > y)": lambda x, y: (x < y) + 2 * (x <= y) + 4 * (x > y),
    "(x >= 0.5) + (x == x) + (x != y)": lambda x, y: (x >= 0.5) + 1 + (x != y),
    "(x < y) - (y < 0.2)*(x > 0.9)": lambda x, y: (x < y) - (y < 0.2) * (x > 0.9),
    "exp(x < y)": lambda x, y: math.exp(x < y),
    "-(x < y)": lambda x, y: -(x < y),
    "where((x < 0.5) & ~(y < 0.2) | (x > 0.9), pi, -y)": lambda x, y: (
        math.pi if (x < 0.5 and not y < 0.2) or x > 0.9 else -y
    ),
    "0x10 + 1e-3 + 1_000": lambda x, y: 1016.001,
}
POINTS = [(0.15, 0.85), (0.5, 0.5), (0.95, 0.1), (0.3, 0.15)]


def check(text, reference):
    """Compare an expression on arrays with a function of two numbers."""
    x, y = np.array(POINTS).T
    expected = [float(reference(*point)) for point in POINTS]
    # Library functions are correct to an ulp or two.
    np.testing.assert_allclose(Expression(text)(y=y, x=x), expected, rtol=1e-15, atol=1e-16)


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_argument_are_those_of_mathematics(name):
    check(f"{name}(x)", lambda x, y: ONE[name](x))
    check(f"{name}(x*y)", lambda x, y: ONE[name](x * y))


def test_arccosh_is_that_of_mathematics():
    check("arccosh(1 + x)", lambda x, y: math.acosh(1 + x))


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_arguments_take_them_in_order(name):
    check(f"{name}(x, y)", lambda x, y: TWO[name](x, y))


@pytest.mark.parametrize("text", OPERATIONS)
def test_operators_bind_as_in_python(text):
    check(text, OPERATIONS[text])


def test_the_result_has_the_shape_of_the_coordinates():
    y, x = np.linspace(0, 1, 3)[:, None], np.linspace(0, 1, 4)
    for text in ("7", "x", "y", "x*y", "where(x < y, 1, 0)"):
        result = Expression(text)(y=y, x=x)
        assert result.shape == (3, 4)
        assert result.dtype == float


@pytest.mark.parametrize("text", ["1/0", "0/0", "log(-1)", "exp(1000)", "sqrt(-x-1)", "10.**999"])
def test_what_is_not_defined_gives_no_number_and_no_warning(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not np.isfinite(Expression(text)(y=0.0, x=0.0))


@pytest.mark.parametrize(
    "text",
    [
        "z",
        "os",
        "__import__('os').system('true')",
        "__builtins__",
        "eval('1')",
        "open(x)",
        "print(x)",
        "getattr(x, y)",
        "exec",
        "x.real",
        "exp.__class__",
        "(1).__class__.__bases__",
        "x[0]",
        "x()",
        "sin(x)(y)",
        "(sin)(x, x)",
        "lambda: x",
        "(lambda x: x)(1)",
        "[x for x in y]",
        "{x: y}",
        "{x}",
        "[x]",
        "(x, y)",
        "(x := 1)",
        "x if y else 1",
        "x and y",
        "not x",
        "x < y < 1",
        "x is y",
        "x in y",
        "x @ y",
        "x // y",
        "x << 2",
        "x ^ y",
        "'a'",
        "b'a'",
        "f'{x}'",
        "1j",
        "True",
        "None",
        "...",
        "sin(*x)",
        "sin(x=1)",
        "sin(x, out=y)",
        "sin(**x)",
        "await x",
        "(yield x)",
        "1e999",
        "1e301",
        "1" + 400 * "0",
    ],
)
def test_everything_else_is_refused_in_one_line(text):
    with pytest.raises(
        ValueError, match=r"expression .* not allowed( \(.*\))?; known: x, y, pi"
    ) as error:
        Expression(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text",
    ["", " ", "x +", "x y", "sin(", "import os", "x; y", "x = 1", "x\ny", "\0", "\ud800", "1__0"],
)
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(ValueError, match="cannot read the expression"):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "given", "needed"),
    [
        ("sin()", 0, 1),
        ("sin(x, y)", 2, 1),
        ("arctan2(x)", 1, 2),
        ("where(x < y, 1)", 2, 3),
        ("where(x, 1, 2, 3)", 4, 3),
    ],
)
def test_a_wrong_number_of_arguments_is_refused_with_the_right_one(text, given, needed):
    with pytest.raises(ValueError, match=rf"with {given} arguments \(it has {needed}\)"):
        Expression(text)


@pytest.mark.parametrize("text", ["~x", "x & y", "1.5 | (x < y)"])
def test_what_joins_comparisons_says_so(text):
    with pytest.raises(ValueError, match=r"& \| and ~ take comparisons in brackets"):
        Expression(text)(y=np.zeros(3), x=np.ones(3))


@pytest.mark.parametrize(
    "text", ["~x", "x & y", "1 | (x < y)", "sin + 1", "-sin", "sin", "abs(sin)"]
)
def test_operators_that_do_not_fit_their_values_are_refused(text):
    with pytest.raises(ValueError, match="cannot evaluate the expression"):
        Expression(text)(y=np.zeros(3), x=np.ones(3))


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9**9**9**9",
        "(((2**1000)**1000)**1000)**1000",
        "-9**(9**9)",
        "99999999**-99999999",
        "(" * 400 + "x" + ")" * 400,
        "-" * 990 + "x",
        "~" * 980 + "(x<y)",
        "x" + "+x" * 499,
        "x" + "**x" * 300,
        "sin(" * 190 + "x" + ")" * 190,
        "x<" * 300 + "x",
    ],
)
def test_huge_powers_and_deep_nesting_end_at_once_in_a_value_or_a_refusal(text):
    try:
        value = Expression(text)(y=0.5, x=0.5)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017 - a value is right, too
    else:
        assert value.shape == ()


def test_a_text_of_more_than_1000_characters_is_refused():
    Expression("x" + "+1" * 400)
    with pytest.raises(ValueError, match="at most 1000 characters, got 1001"):
        Expression("x" + "+1" * 500)


@pytest.mark.parametrize("text", [r"'\d'", "1 is x", "1(x)", "0x1for x in y", "1if x else y"])
def test_the_parser_s_own_warnings_are_not_shown(text):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="expression"):
            Expression(text)
    assert not seen


def test_boundary_data_of_an_expression_must_be_finite():
    with pytest.raises(ValueError, match="not finite"):
        Boundary.of_expression("log(x)", m.Domain((4, 4), 0.25).grid())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x^2", r"\^ is not allowed \(a power is \*\*\)"),
        ("np.sin(x)", r"np.sin is not allowed \(write sin\)"),
        ("math.sqrt(x)", r"math.sqrt is not allowed \(write sqrt\)"),
        ("sine(x)", r"sine is not allowed \(did you mean 'sin'\?\)"),
        ("nan", r"nan is not allowed \(numbers are finite\)"),
        ("-Inf*x", r"Inf is not allowed \(numbers are finite\)"),
        ("t*x", r"t is not allowed \(the time: "),
        ("x.real", "attribute is not allowed;"),
    ],
)
def test_what_is_not_allowed_is_named_with_what_is(text, message):
    with pytest.raises(ValueError, match=message):
        Expression(text)
