"""What a march's checkpoint belongs to: names and numbers, and checksums of values, whatever the ranks."""

import hashlib
from typing import Protocol

import numpy as np

from mosaicdd.lattice.axes import times
from mosaicdd.problems.discretisation.given_conditions import conditions_of
from mosaicdd.problems.fields.checksum import checksum
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.in_time import SidesInTime, frame, in_frames
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.field_share import FieldShare
from mosaicdd.time.settings import TimeSettings


class Marched(Protocol):
    """What is marched: the initial values are at the nodes that a rank holds."""

    problem: Problem
    time: TimeSettings
    share: FieldShare
    first: np.ndarray
    solved: str


def identity_of(march: Marched) -> dict:
    """Return what must be equal for a checkpoint to be of use; the number of steps may differ.

    Fields that are no numbers and no texts are told by their values at the nodes, those of a source at all
    times by the first two of these. All ranks together.
    """
    problem, share = march.problem, march.share
    sums = {"initial values": checksum(share.owned(march.first)[None], share.own)}
    for name, field in problem.arrays.items():
        if not isinstance(field.values, str):
            sums[f"values of {name}"] = _checksum(field, share)
    shape = problem.domain.shape
    if shape is not None:
        sums["domain"] = checksum(shape.level(share.grid, share.own)[None], share.own)
    together = np.array(share.ranks.allgather(list(sums.values())), np.uint64)
    return {
        "cells": times(problem.domain.cells),
        "pde": problem.equation.name,
        "local solver": march.solved,
        "method": march.time.method,
        "dt": march.time.dt,
        "every": march.time.every,
        "tolerance": march.time.tolerance,
        "parameters": problem.described,
        "field f": str(problem.source),
        "boundary": _digest(problem, share),
    } | {
        name: f"{total:016x}"
        for name, total in zip(sums, together.sum(axis=0, dtype=np.uint64).tolist(), strict=True)
    }


def _checksum(field: Field, share: FieldShare) -> int:
    """Return that of a field's values at the nodes that this rank owns."""
    in_time = field.name == "f" and in_frames(field)
    frames = [frame(field, n) for n in (0, 1)] if in_time else [field]
    total = 0
    for number, still in enumerate(frames):
        values = still.sample_as_given(share.grid, share.own, checked=False)
        total += (number + 1) * checksum(values, share.own)
    return total % 2**64


def _digest(problem: Problem, share: FieldShare) -> str:
    """Return what tells values on the outline at two times from others."""
    sides = SidesInTime(problem.conditions)
    content = [
        condition.told()
        for t in (0.0, 1.0)
        for condition in conditions_of(problem.with_sides(sides(t)), share.grid)
    ]
    return hashlib.sha256(b"".join(content)).hexdigest()[:16]
