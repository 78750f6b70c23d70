"""Expressions in ``x`` and ``y``, ``t`` or ``u``, from a command line, parsed and never ``eval``-ed.

The syntax tree is walked by hand: numbers, variables, ``pi``, arithmetic, comparisons and the
functions of numexpr are known; everything else is refused by name.

What arguments a function of the user takes: coordinates, and the time after them or by its name ``t``.

A parameter with a default, as ``k`` of ``lambda x, y, k=k: k * x``, keeps it, unless it is named ``t``.
"""

import ast
import functools
import inspect
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from mosaicdd.axes import coordinates, letters
from mosaicdd.settings import meant

if TYPE_CHECKING:
    import torch


TIME = "t"


"""The name of the time, in functions as in expressions."""


Takes = Literal["after", "named"]


"""How a function takes the time: as the argument after the coordinates, or by its name."""


_Parameters = Mapping[str, inspect.Parameter]


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class OfPlace:
    """A function of coordinates that the package made, whose time is said."""


class AtInstant(OfPlace):
    """A function of coordinates and the time, at one time ``t``."""

    def __init__(self, function: Callable, takes: Takes, t: float):
        self._function, self._takes, self._t = function, takes, t

    def __call__(self, *places: np.ndarray) -> Any:
        """Return its values at coordinates, x first."""
        if self._takes == "after":
            return self._function(*places, self._t)
        return self._function(*places, **{TIME: self._t})


def takes_time(function: Callable, axes: int) -> Takes | None:
    """Say how a function takes the time; None if it is one of the coordinates alone.

    `TypeError` if it takes neither, or nothing says which.
    """
    if isinstance(function, OfPlace):
        return None
    if isinstance(function, np.ufunc):  # whose other parameters are none of the function
        return "after" if function.nin == axes + 1 else None
    signature = signature_of(function)
    if signature is None or _takes_any(signature.parameters):
        return _tried(function, axes)
    parameters = signature.parameters
    positional, required = _positional(parameters), _required(parameters)
    now = parameters.get(TIME)
    names, place = [p.name for p in positional], coordinates(axes)
    both = (
        f"a function of ({place}), or of ({place}, {TIME}), is needed, this one takes {signature}"
    )
    if len(required) > axes + 1:
        raise TypeError(both)
    if TIME in names[:axes]:
        raise TypeError(f"{both}: the time {TIME} comes after the coordinates")
    if len(required) == axes + 1:
        last = names[axes]
        if last in letters(3) or (now is not None and last != TIME):
            raise TypeError(f"{both}: is {last} the time? Name it {TIME}, or give {last} a default")
        return "after"
    if now is None or TIME in _bound(function):
        return None
    return "after" if names[axes : axes + 1] == [TIME] else "named"


def require_coordinates(function: Callable, axes: int, what: str) -> None:
    """Check that no coordinate is taken for a parameter with a default of another name; else raise `TypeError`."""
    if isinstance(function, OfPlace):
        return
    place = coordinates(axes)
    taken = None
    if isinstance(function, np.ufunc):
        signature: Any = inspect.signature(function) if function.nin < axes else None
        taken = "out" if function.nin < axes else None
    elif (signature := signature_of(function)) is not None:
        expected = zip(_positional(signature.parameters), letters(axes)[::-1], strict=False)
        taken = next((p.name for p, name in expected if _optional(p) and p.name != name), None)
    if taken is not None:
        raise TypeError(
            f"{what} must be a function of ({place}), this one takes {signature}: {taken} would be a coordinate; give "
            f"lambda {place}: .. of those that it needs"
        )


def require_of_time(function: Callable, what: str) -> None:
    """Check that a function takes the time alone, whatever its name; else raise `TypeError`."""
    signature = None if isinstance(function, np.ufunc) else signature_of(function)
    if signature is None or _takes_any(signature.parameters):
        return
    required = _required(signature.parameters)
    if len(required) != 1 and not (
        not required and [p.name for p in _positional(signature.parameters)][:1] == [TIME]
    ):
        raise TypeError(
            f"{what} must be a function of the time {TIME} alone, this one takes {signature}: give lambda {TIME}: .."
        )


def signature_of(function: Callable) -> inspect.Signature | None:
    """Return what a function takes; None of one, of a library, that does not say."""
    try:
        return inspect.signature(getattr(function, "pyfunc", function))  # numpy's `vectorize`
    except (ValueError, TypeError):
        return None


def _takes_any(parameters: _Parameters) -> bool:
    return any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values())


def _optional(parameter: inspect.Parameter) -> bool:
    return parameter.default is not inspect.Parameter.empty


def _positional(parameters: _Parameters) -> list[inspect.Parameter]:
    return [p for p in parameters.values() if p.kind in _POSITIONAL]


def _required(parameters: _Parameters) -> list[inspect.Parameter]:
    return [p for p in _positional(parameters) if not _optional(p)]


def _bound(function: Callable) -> set[str]:
    """Return the names that partial functions have set."""
    names: set[str] = set()
    while isinstance(function, functools.partial):
        names |= {*function.keywords}
        function = function.func
    return names


def _tried(function: Callable, axes: int) -> Takes | None:
    """Say how a function that takes any number of arguments takes the time, by calls at one point."""
    works = [_works(function, count) for count in (axes, axes + 1)]
    if works[0] != works[1]:
        return "after" if works[1] else None
    place = coordinates(axes)
    raise TypeError(
        f"nothing says whether a function of any number of arguments depends on the time: give lambda {place}: .., or "
        f"lambda {place}, {TIME}: .."
    )


def _works(function: Callable, count: int) -> bool:
    """Say whether a function can be called with so many arguments."""
    with np.errstate(all="ignore"):
        try:
            function(*np.zeros((count, *[1] * count)))
        except Exception:  # noqa: BLE001 - whatever the user's function raises
            return False
    return True


_OF_NUMPY = {
    name: getattr(np, name)
    for name in (
        *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2"),
        *("sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"),
        *("exp", "expm1", "log", "log10", "log1p", "sqrt", "abs", "floor", "ceil", "fmod"),
        *("hypot", "minimum", "maximum"),
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


_TENSOR_OPERATORS = _OPERATORS | {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.Mod: operator.mod,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


_STEPS = ("floor", "ceil", "fmod", "arctan2")  # functions that are not continuous


_VARIABLES = ("x", "y", "pi")


_LONGEST = 1000  # characters: a formula, no program, whose tree Python walks by recursion


class Expression:
    """A function of the coordinates, in units of domain length, or of the solution.

    `ValueError` if the text is not an expression, or uses something that is not allowed.

    Parameters
    ----------
    variables
        Names that may stand in the text.
    known
        Others, and what they are: the time, ``t=0.5``.
    """

    def __init__(self, text: str, variables: tuple[str, ...] = _VARIABLES, **known: float):
        self.text = self.name = text
        self._variables = (*variables, *known)
        self._known = {name: np.float64(value) for name, value in known.items()}
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

    def _refuse(self, what: str, why: str = "") -> NoReturn:
        known = ", ".join((*self._variables, *_FUNCTIONS))
        raise ValueError(f"expression {self.text!r}: {what} is not allowed{why}; known: {known}")

    def _check(self, node: ast.AST) -> None:
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                if abs(value) > 1e300:
                    self._refuse("a number above 1e300")
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _ARITY:
                if len(arguments) != _ARITY[name]:
                    self._refuse(f"{name} with {len(arguments)} arguments (it has {_ARITY[name]})")
            case ast.Name(id=name) if name in self._variables or name in _FUNCTIONS:
                pass
            case ast.Name(id="t"):
                self._refuse(
                    "t",
                    " (the time: fields and values on sides may depend on it, in steps)",
                )
            case ast.Name(id=name) if name.lower() in ("nan", "inf", "infinity"):
                self._refuse(name, " (numbers are finite)")
            case ast.Name(id=name) | ast.Call(func=ast.Name(id=name), args=[_, *_], keywords=[]):
                self._refuse(name, meant(name, (*self._variables, *_FUNCTIONS)))
            case ast.Call(func=ast.Attribute(attr=name)) if name in _FUNCTIONS:
                self._refuse(ast.unparse(node.func), f" (write {name})")
            case ast.BitXor():
                self._refuse("^", " (a power is **)")
            case ast.Compare(ops=[_]) | ast.BinOp() | ast.UnaryOp() | ast.Load():
                pass
            case _ if type(node) in _OPERATORS:
                pass
            case _:
                self._refuse(type(node).__name__.lower())

    def _failed(self, error: Exception) -> ValueError:
        """Return what to raise where a value cannot be computed."""
        why = str(error)
        if isinstance(error, TypeError) and any(
            isinstance(node, ast.BitAnd | ast.BitOr | ast.Invert) for node in ast.walk(self._tree)
        ):
            why = "& | and ~ take comparisons in brackets, as (x < 1) & (y < 1)"
        return ValueError(f"cannot evaluate the expression {self.text!r}: {why}")

    def uses(self, variable: str) -> bool:
        """Say whether a variable stands in the text."""
        names = (node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name))
        return variable in names

    def may_jump(self, variable: str) -> bool:
        """Say whether it may jump where a variable moves: by what compares or counts it."""
        return any(
            isinstance(name, ast.Name) and name.id == variable
            for node in ast.walk(self._tree)
            for part in _jumping(node)
            for name in ast.walk(part)
        )

    def __call__(self, **at: np.ndarray | float) -> np.ndarray:
        """Evaluate at coordinates by name that broadcast; overflow and the like give non-finite values.

        `ValueError` if an operator does not fit its values, as ``~`` of a number.
        """
        values: dict[str, Any] = {name: np.asarray(v, float) for name, v in at.items()}
        values |= {"pi": np.float64(np.pi)} | self._known
        with np.errstate(all="ignore"):
            try:
                result = _evaluated(self._tree, values, _FUNCTIONS, _OPERATORS)
            except (TypeError, ValueError, RecursionError) as error:
                raise self._failed(error) from None
        return np.array(
            np.broadcast_to(result, np.broadcast_shapes(*map(np.shape, at.values()))), float
        )

    def of_tensors(self, **values: "torch.Tensor") -> "torch.Tensor":
        """Evaluate at tensors, through which torch can differentiate.

        `ValueError` if an operator does not fit its values.
        """
        import torch

        functions = {name: getattr(torch, name) for name in _FUNCTIONS}
        like = next(iter(values.values()))
        known = values | {"pi": math.pi}
        try:
            result = _evaluated(self._tree, known, functions, _TENSOR_OPERATORS)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._failed(error) from None
        return torch.as_tensor(result, dtype=like.dtype).expand_as(like)


def _jumping(node: ast.AST) -> list[ast.expr]:
    """Return the parts of a node in which it is not continuous."""
    match node:
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.Call(func=ast.Name(id="where"), args=[condition, *_]):
            return [condition]
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _STEPS:
            return arguments
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return [left, right]
    return []


def _evaluated(node: ast.AST, values: dict, functions: dict, operators: dict) -> Any:
    """Evaluate a checked tree with the functions and operators of numpy, or of torch."""

    def of(part: ast.AST) -> Any:
        return _evaluated(part, values, functions, operators)

    match node:
        case ast.Constant(value=int() | float() as value):
            return np.float64(value)
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return functions[name](*map(of, arguments))
        case ast.BinOp(left=left, op=op, right=right):
            return operators[type(op)](of(left), of(right))
        case ast.UnaryOp(op=op, operand=operand):
            return operators[type(op)](of(operand))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return operators[type(op)](of(left), of(right))
    raise ValueError("a function stands where a value is needed")
