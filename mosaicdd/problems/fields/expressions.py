"""Expressions in ``x`` and ``y``, ``t`` or ``u``, parsed and never ``eval``-ed; arguments of functions.

The syntax tree is walked by hand: numbers, variables, ``pi``, arithmetic, comparisons and the
functions of numexpr are known; everything else is refused by name.

A function of the user takes coordinates, and the time after them or by its name ``t``. A parameter with a
default, as ``k`` of ``lambda x, y, k=k: k * x``, keeps it, unless it is named ``t``.
"""

import ast
import functools
import inspect
import itertools
import math
import operator
import warnings
from collections.abc import Callable
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


class OfPlace:
    """A function of coordinates alone, made by the package."""

    def __init__(self, function: Callable):
        self._function = function

    def __call__(self, *places: np.ndarray) -> Any:
        """Return its values at coordinates, x first."""
        return self._function(*places)


def at_instant(function: Callable, takes: Takes, t: float) -> OfPlace:
    """Return a function of coordinates and the time at one time ``t``."""
    if takes == "after":
        return OfPlace(lambda *places: function(*places, t))
    return OfPlace(functools.partial(function, **{TIME: t}))


def takes_time(function: Callable, axes: int) -> Takes | None:
    """Say how a function takes the time; None without the time.

    `TypeError` if it takes neither, or nothing says which.
    """
    if isinstance(function, OfPlace):
        return None
    if isinstance(function, np.ufunc):  # whose other parameters are none of the function
        return "after" if function.nin == axes + 1 else None
    signature = _signature_of(function)
    if signature is None or _takes_any(signature):
        return _tried(function, axes)
    arguments, place = _arguments(signature), coordinates(axes)
    names, required, has_time = [*arguments], sum(arguments.values()), TIME in signature.parameters
    both = (
        f"a function of ({place}), or of ({place}, {TIME}), is needed, this one takes {signature}"
    )
    if required > axes + 1:
        raise TypeError(both)
    if TIME in names[:axes]:
        raise TypeError(f"{both}: the time {TIME} comes after the coordinates")
    if required == axes + 1:
        last = names[axes]
        if last in letters(3) or (has_time and last != TIME):
            raise TypeError(f"{both}: is {last} the time? Name it {TIME}, or give {last} a default")
        return "after"
    while isinstance(function, functools.partial):  # whose keywords have a value already
        has_time &= TIME not in function.keywords
        function = function.func
    if not has_time:
        return None
    return "after" if names[axes : axes + 1] == [TIME] else "named"


def require_coordinates(function: Callable, axes: int, what: str) -> None:
    """Raise `TypeError` where a coordinate would replace the default of a parameter of another name."""
    if isinstance(function, OfPlace):
        return
    place, taken = coordinates(axes), None
    signature: Any = None
    if isinstance(function, np.ufunc):
        if function.nin < axes:
            signature, taken = inspect.signature(function), "out"
    elif signature := _signature_of(function):
        expected = zip(_arguments(signature).items(), letters(axes)[::-1], strict=False)
        wrong = (name for (name, required), along in expected if not required and name != along)
        taken = next(wrong, None)
    if taken is not None:
        raise TypeError(
            f"{what} must be a function of ({place}), this one takes {signature}: {taken} would be a coordinate; give "
            f"lambda {place}: .. of those that it needs"
        )


def require_arguments(function: Callable, axes: int, what: str) -> None:
    """Raise `TypeError` unless a function can be called with a coordinate along each axis."""
    signature = _signature_of(function)
    try:
        if signature is not None:
            signature.bind(*[0.0] * axes)
    except TypeError:
        timed = TIME in signature.parameters  # type: ignore[union-attr]
        time = "; what depends on the time t is for steps (march)" if timed else ""
        raise TypeError(
            f"{what} must be a function of ({coordinates(axes)}), this one takes {signature}{time}"
        ) from None


def require_of_time(function: Callable, what: str) -> None:
    """Raise `TypeError` unless a function takes one argument, the time, of any name."""
    signature = None if isinstance(function, np.ufunc) else _signature_of(function)
    if signature is None or _takes_any(signature):
        return
    arguments = _arguments(signature)
    required = sum(arguments.values())
    if required > 1 or (required == 0 and [*arguments][:1] != [TIME]):
        raise TypeError(
            f"{what} must be a function of the time {TIME} alone, this one takes {signature}: give lambda {TIME}: .."
        )


def _signature_of(function: Callable) -> inspect.Signature | None:
    """Return the signature of a function; None of one, of a library, that has none."""
    try:
        return inspect.signature(getattr(function, "pyfunc", function))  # numpy's `vectorize`
    except (ValueError, TypeError):
        return None


def _takes_any(signature: inspect.Signature) -> bool:
    return any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())


def _arguments(signature: inspect.Signature) -> dict[str, bool]:
    """Return whether each positional argument is required, by name."""
    positional = [p for p in signature.parameters.values() if p.kind < p.VAR_POSITIONAL]
    return {p.name: p.default is p.empty for p in positional}


def _tried(function: Callable, axes: int) -> Takes | None:
    """Find out by calls at one point how a variadic function takes the time."""
    works = []
    for count in (axes, axes + 1):
        with np.errstate(all="ignore"):
            try:
                function(*np.zeros((count, *[1] * count)))
                works.append(True)
            except Exception:  # noqa: BLE001 - whatever the user's function raises
                works.append(False)
    if works[0] != works[1]:
        return "after" if works[1] else None
    place = coordinates(axes)
    raise TypeError(
        f"nothing says whether a function of any number of arguments depends on the time: give lambda {place}: .., or "
        f"lambda {place}, {TIME}: .."
    )


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
_STEPS = ("floor", "ceil", "fmod", "arctan2")  # functions that are not continuous
_ARITHMETIC = {  # by numpy, and by torch
    ast.Add: (np.add, operator.add),
    ast.Sub: (np.subtract, operator.sub),
    ast.Mult: (np.multiply, operator.mul),
    ast.Div: (np.divide, operator.truediv),
    ast.Pow: (np.power, operator.pow),
    ast.Mod: (np.mod, operator.mod),
    ast.UAdd: (np.positive, operator.pos),
    ast.USub: (np.negative, operator.neg),
}
_LOGIC = {
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


def _in_float(functions: dict) -> dict:
    """Compute in float64, as numpy's sum of two truth values is their "or"."""
    return {key: functools.partial(function, dtype=float) for key, function in functions.items()}


_FUNCTIONS = _in_float(_OF_NUMPY) | {"where": np.where}
_OPERATORS = _in_float({kind: of for kind, (of, _) in _ARITHMETIC.items()}) | _LOGIC
_TENSOR_OPERATORS = {kind: of for kind, (_, of) in _ARITHMETIC.items()} | _LOGIC
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
                why = " (the time: fields and values on sides may depend on it, in steps)"
                self._refuse("t", why)
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

    def uses(self, variable: str) -> bool:
        """Say whether a variable stands in the text."""
        return _uses(self._tree, variable)

    def may_jump(self, variable: str) -> bool:
        """Say whether the expression may be discontinuous in a variable."""
        parts = itertools.chain.from_iterable(map(_jumping, ast.walk(self._tree)))
        return any(_uses(part, variable) for part in parts)

    def _value(self, values: dict, functions: dict, operators: dict) -> Any:
        """Evaluate the tree; raise `ValueError` where an operator does not fit its values."""
        try:
            return _evaluated(self._tree, values, functions, operators)
        except (TypeError, ValueError, RecursionError) as error:
            why, logical = str(error), {ast.BitAnd, ast.BitOr, ast.Invert}
            if type(error) is TypeError and logical & {*map(type, ast.walk(self._tree))}:
                why = "& | and ~ take comparisons in brackets, as (x < 1) & (y < 1)"
            raise ValueError(f"cannot evaluate the expression {self.text!r}: {why}") from None

    def __call__(self, **at: np.ndarray | float) -> np.ndarray:
        """Evaluate at coordinates by name that broadcast; overflow and the like give non-finite values.

        `ValueError` if an operator does not fit its values, as ``~`` of a number.
        """
        values: dict[str, Any] = {name: np.asarray(v, float) for name, v in at.items()}
        values |= {"pi": np.float64(np.pi)} | self._known
        with np.errstate(all="ignore"):
            result = self._value(values, _FUNCTIONS, _OPERATORS)
        shape = np.broadcast_shapes(*map(np.shape, at.values()))
        return np.array(np.broadcast_to(result, shape), float)

    def of_tensors(self, **values: "torch.Tensor") -> "torch.Tensor":
        """Evaluate at tensors, through which torch can differentiate.

        `ValueError` if an operator does not fit its values.
        """
        import torch

        functions = {name: getattr(torch, name) for name in _FUNCTIONS}
        like = next(iter(values.values()))
        result = self._value(values | {"pi": math.pi}, functions, _TENSOR_OPERATORS)
        return torch.as_tensor(result, dtype=like.dtype).expand_as(like)


def _uses(tree: ast.AST, variable: str) -> bool:
    return variable in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _jumping(node: ast.AST) -> list[ast.expr]:
    """Return the arguments of a node in which its value is discontinuous."""
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
