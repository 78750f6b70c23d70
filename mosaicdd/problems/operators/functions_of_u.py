"""Coefficients that depend on the solution, as functions of tensors, through which torch differentiates."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from mosaicdd.problems.fields.expressions import Expression
from mosaicdd.problems.fields.given import is_number

Function = Callable[[torch.Tensor], torch.Tensor]
"""A coefficient that depends on the solution."""


def function_of_u(name: str, value: Any) -> Function:
    """Return a function of tensors from the text of an expression in ``u``, a number or a function."""
    if callable(value) and not isinstance(value, Expression):
        _require_of_tensors(name, value)
        return value
    try:
        expression = Expression(str(value).removeprefix("expr:"), variables=("u", "pi"))
    except ValueError as error:
        raise ValueError(f"the field {name}: {error}") from error
    return _OfU(expression)


def _require_of_tensors(name: str, function: Function) -> None:
    """Raise `TypeError` unless a function takes tensors, through which torch differentiates: tried on three values."""
    u = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64, requires_grad=True)
    how = f"the function for the field {name} must be of tensors, made of torch's functions as torch.exp"
    try:
        values = function(u)
    except Exception as error:
        raise TypeError(f"{how}: {type(error).__name__}: {error}") from error
    if not (is_number(values) or (isinstance(values, torch.Tensor) and values.shape == u.shape)):
        kind = tuple(values.shape) if hasattr(values, "shape") else type(values).__name__
        raise TypeError(f"{how}, and give as many values, got {kind} for {tuple(u.shape)}")


@dataclasses.dataclass(frozen=True)
class _OfU:
    """The function of tensors that an expression in ``u`` is; it can be pickled."""

    expression: Expression

    def __call__(self, u: torch.Tensor) -> torch.Tensor:
        return self.expression.of_tensors(u=u)
