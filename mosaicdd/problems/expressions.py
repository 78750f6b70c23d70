"""Expressions in ``x`` and ``y`` from a command line, parsed and never ``eval``-ed.

The syntax tree is walked by hand: numbers, ``x``, ``y``, ``pi``, arithmetic, comparisons and the
functions of numexpr are known; everything else is refused by name.
"""

import ast
import functools
import operator
import warnings
from typing import Any, NoReturn

import numpy as np

_OF_NUMPY = {
    name: getattr(np, name)
    for name in (
        *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2"),
        *("sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"),
        *("exp", "expm1", "log", "log10", "log1p", "sqrt", "abs", "floor", "ceil", "fmod"),
    )
}
_ARITY = {name: function.nin for name, function in _OF_NUMPY.items()} | {"where": 3}
_ARITHMETIC = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
    ast.Mod: np.mod,
    ast.UAdd: np.positive,
    ast.USub: np.negative,
}


def _in_float(functions: dict) -> dict:
    """Let comparisons count as 0.0 and 1.0: the sum of two truth values in numpy is their "or"."""
    return {key: functools.partial(function, dtype=float) for key, function in functions.items()}


_FUNCTIONS = _in_float(_OF_NUMPY) | {"where": np.where}
_OPERATORS = _in_float(_ARITHMETIC) | {
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.Invert: operator.invert,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_VARIABLES = ("x", "y", "pi")
_LONGEST = 1000


class Expression:
    """A function of the coordinates, in units of domain length.

    Raises
    ------
    ValueError
        If the text is not an expression, or uses something that is not allowed.
    """

    def __init__(self, text: str):
        self.text = text
        if len(text) > _LONGEST:
            raise ValueError(f"an expression has at most {_LONGEST} characters, got {len(text)}")
        try:
            with warnings.catch_warnings():  # of the parser, about what is refused below
                warnings.simplefilter("ignore")
                self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise ValueError(f"cannot read the expression {text!r}") from None
        for node in ast.walk(self._tree):
            self._check(node)

    def _refuse(self, what: str) -> NoReturn:
        known = ", ".join((*_VARIABLES, *_FUNCTIONS))
        raise ValueError(f"expression {self.text!r}: {what} is not allowed; known: {known}")

    def _check(self, node: ast.AST) -> None:
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                if abs(value) > 1e300:
                    self._refuse("a number above 1e300")
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _ARITY:
                if len(arguments) != _ARITY[name]:
                    self._refuse(f"{name} with {len(arguments)} arguments (it has {_ARITY[name]})")
            case ast.Name(id=name) if name in _VARIABLES or name in _FUNCTIONS:
                pass
            case ast.Name(id=name):
                self._refuse(name)
            case ast.Compare(ops=[_]) | ast.BinOp() | ast.UnaryOp() | ast.Load():
                pass
            case _ if type(node) in _OPERATORS:
                pass
            case _:
                self._refuse(type(node).__name__.lower())

    def __call__(self, *, y: np.ndarray | float, x: np.ndarray | float) -> np.ndarray:
        """Evaluate at coordinates that broadcast; overflow and the like give non-finite values.

        Raises
        ------
        ValueError
            If an operator does not fit its values, as ``~`` of a number.
        """
        values = {"x": np.asarray(x, float), "y": np.asarray(y, float), "pi": np.float64(np.pi)}
        with np.errstate(all="ignore"):
            try:
                result = self._evaluate(self._tree, values)
            except (TypeError, ValueError, RecursionError) as error:
                raise ValueError(f"cannot evaluate the expression {self.text!r}: {error}") from None
        return np.array(
            np.broadcast_to(result, np.broadcast_shapes(np.shape(y), np.shape(x))), float
        )

    def _evaluate(self, node: ast.AST, values: dict) -> Any:
        match node:
            case ast.Constant(value=int() | float() as value):
                return np.float64(value)
            case ast.Name(id=name) if name in values:
                return values[name]
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return _FUNCTIONS[name](*(self._evaluate(a, values) for a in arguments))
            case ast.BinOp(left=left, op=op, right=right):
                pair = self._evaluate(left, values), self._evaluate(right, values)
                return _OPERATORS[type(op)](*pair)
            case ast.UnaryOp(op=op, operand=operand):
                return _OPERATORS[type(op)](self._evaluate(operand, values))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                pair = self._evaluate(left, values), self._evaluate(right, values)
                return _OPERATORS[type(op)](*pair)
        raise ValueError("a function stands where a value is needed")
