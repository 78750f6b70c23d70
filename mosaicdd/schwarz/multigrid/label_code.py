"""Sums over the nodes of each label, and constants added to them: loops over labels in compiled code."""

from collections.abc import Callable
from functools import cache

import torch

from mosaicdd.schwarz.multigrid.vector_code import NAMES, function


def add_up(
    labels: torch.Tensor, left: torch.Tensor, right: torch.Tensor | None, sums: torch.Tensor
) -> None:
    """Add values, or their differences, to the sums of their labels, in float64.

    Parameters
    ----------
    labels
        ``(M,)`` int32.
    left, right
        ``(M,)``.
    sums
        As many as there are labels.
    """
    run, second = None, left if right is None else right
    if _is_plain(labels, left, second, sums):
        run = _adding_up(left.dtype, differ=right is not None)
    if run is None:
        sums.index_add_(0, labels, (left if right is None else left - right).double())
    else:
        run(*(of.data_ptr() for of in (labels, left, second, sums)), len(labels))


def add_constants(labels: torch.Tensor, constants: torch.Tensor, values: torch.Tensor) -> None:
    """Add to each value the constant of its label, of the same kind of numbers."""
    run = None
    if _is_plain(labels, constants, values):
        run = _adding_constants(values.dtype)
    if run is None:
        values += constants.index_select(0, labels)
    else:
        run(*(of.data_ptr() for of in (labels, constants, values)), len(labels))


def _is_plain(*parts: torch.Tensor) -> bool:
    return all(part.device.type == "cpu" and part.is_contiguous() for part in parts)


@cache
def _adding_up(dtype: torch.dtype, *, differ: bool) -> Callable[..., None] | None:
    scalar = NAMES[dtype]
    difference = [
        f"%right.at = getelementptr {scalar}, ptr %right, i64 %i",
        f"%b = load {scalar}, ptr %right.at",
        f"%d = fsub {scalar} %a, %b",
    ]
    value = "%d" if differ else "%a"
    if dtype != torch.float64:
        difference.append(f"%long = fpext {scalar} {value} to double")
        value = "%long"
    return _loop(
        "ppppi",
        "ptr %labels, ptr %left, ptr %right, ptr %sums",
        f"%left.at = getelementptr {scalar}, ptr %left, i64 %i",
        f"%a = load {scalar}, ptr %left.at",
        *difference[0 if differ else 3 :],
        "%sum.at = getelementptr double, ptr %sums, i32 %label",
        "%sum = load double, ptr %sum.at",
        f"%more = fadd double %sum, {value}",
        "store double %more, ptr %sum.at",
    )


@cache
def _adding_constants(dtype: torch.dtype) -> Callable[..., None] | None:
    scalar = NAMES[dtype]
    return _loop(
        "pppi",
        "ptr %labels, ptr %constants, ptr %values",
        f"%constant.at = getelementptr {scalar}, ptr %constants, i32 %label",
        f"%constant = load {scalar}, ptr %constant.at",
        f"%value.at = getelementptr {scalar}, ptr %values, i64 %i",
        f"%value = load {scalar}, ptr %value.at",
        f"%more = fadd {scalar} %value, %constant",
        f"store {scalar} %more, ptr %value.at",
    )


def _loop(kinds: str, arguments: str, *lines: str) -> Callable[..., None] | None:
    """Return a function of labels and other arrays, whose lines are for the label of each node; see `function`."""
    every = [
        f"define void @labels({arguments}, i64 %count) {{",
        "entry:",
        "br label %each",
        "each:",
        "%i = phi i64 [0, %entry], [%next, %node]",
        "%there = icmp slt i64 %i, %count",
        "br i1 %there, label %node, label %exit",
        "node:",
        "%label.at = getelementptr i32, ptr %labels, i64 %i",
        "%label = load i32, ptr %label.at",
        *lines,
        "%next = add i64 %i, 1",
        "br label %each",
        "exit:",
        "ret void",
        "}",
    ]
    return function("labels", "\n".join(every), kinds)
