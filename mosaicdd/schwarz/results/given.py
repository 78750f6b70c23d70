"""What is given of a problem, in its solution file: parameters, source and domain, some rows at a time."""

import functools
from collections.abc import Callable, Iterator

import numpy as np

from mosaicdd.lattice.axes import Slices, in_rows
from mosaicdd.lattice.grid import Grid
from mosaicdd.parallel.collect import Part
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.problem import Problem
from mosaicdd.storage.domain_file import LEVEL
from mosaicdd.storage.solution_writer import SolutionWriter

_SAMPLES = 2**20  # values that a rank has at a time
Sample = Callable[[Slices], np.ndarray]
"""Values ``(n, rows, columns)`` at the nodes of a part, or in the cells above and to the right of them."""


def write_given(
    problem: Problem,
    grid: Grid,
    dtype: str,
    writer: SolutionWriter | None,
    put: Callable[[str, Sample, str], None],
    only_root: Callable[[Callable[[], None]], None],
) -> None:
    """Write a problem's parameters, source and domain by the writer that the root has.

    ``put(name, sample, dtype)`` writes to an array what a function returns at parts of its nodes; ``only_root(function)`` calls
    a function on the root and raises its error on all that take part.
    """
    shape = problem.domain.shape

    def numbers() -> None:
        if writer is not None:
            for name, number in problem.numbers.items():
                writer.field(name, number)

    def begin(name: str, field: Field) -> None:
        if writer is not None:
            several = (field.problems,) if field.problems > 1 else ()
            places = grid.shape if field.per_cell(grid) else grid.nodes
            writer.create_common(f"fields/{name}", (*several, *places), dtype)
            if field.foils is not None:
                writer.foils(name, field.foils.table)

    def domain() -> None:
        if writer is not None and shape is not None:
            writer.domain(shape, grid)

    only_root(numbers)
    for name, field in problem.arrays.items():
        only_root(functools.partial(begin, name, field))
        sample = functools.partial(field.sample_as_given, grid, checked=shape is None)
        put(f"fields/{name}", sample, dtype)
    only_root(domain)
    if shape is not None and shape.voxels is None:
        put(LEVEL, lambda part: shape.level(grid, part)[None], "float64")


def samples(sample: Sample, nodes: Slices) -> Iterator[Part]:
    """Yield values ``(n, rows, columns)`` at some nodes, a few rows at a time, and their places."""
    for place in in_rows(nodes, _SAMPLES):
        values = sample(place)
        ends = zip(place, values.shape[1:], strict=True)
        there = (slice(part.start, part.start + count) for part, count in ends)
        yield values, (slice(0, len(values)), *there)
