"""Files in which a byte has changed: refused in one line, or read as the very same numbers."""

import dataclasses

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd import read
from mosaicdd.grid.window import Window
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.local_solvers.loading import SHIPPED
from mosaicdd.storage.checkpoint_file import SOLVE, read_arrays, read_state, writing_checkpoint
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.storage.inputs import read_boundaries
from mosaicdd.storage.model_file import read_model, write_model
from mosaicdd.storage.solution_writer import RankPart, SolutionWriter

PLACES = 100
RNG = np.random.default_rng(0)
GRID = m.Domain((32, 48), 0.5 / 32).grid()
PROBLEM = {"cells": "48x32"}
HISTORY = {"update": [1.0, 0.1], "residual": [1.0, np.nan]}


def write_solution(path):
    field = RNG.standard_normal(GRID.nodes)
    window = Window.whole(GRID)
    part = RankPart(grid=GRID, window=window, own=window.place)
    with SolutionWriter(path, part, [Boundary.of_field(field)]) as writer:
        writer.begin()
        writer.write("solution", field[:20], (slice(0, 20), slice(None)))
        writer.write("solution", field[20:], (slice(20, None), slice(None)))
        writer.create("outside_training_range", (3, 4), "uint8")
        writer.write("outside_training_range", np.ones((1, 2)), (slice(1, 2), slice(1, 3)))
        writer.describe({"status": "converged_rtol", "seconds": {"iterate": 1.5}}, [HISTORY])


def write_checkpoint(path):
    with writing_checkpoint(path, m.Ranks.alone(), SOLVE, PROBLEM, {"problems": HISTORY}) as file:
        for axis, shape in enumerate([(3, 49), (4, 33)]):
            name = f"lines/{axis}"
            file.create(name, shape, "float64")
            inner = RNG.standard_normal([n - 2 for n in shape])
            file.fill(name, [(inner, tuple(slice(1, n - 1) for n in shape))])


def everything_of_checkpoint(path):
    return read_state(path, SOLVE, PROBLEM), read_arrays(path, "lines")


def write_small_model(path):
    card, weights = read_model(SHIPPED / "laplace.h5")
    write_model(path, card, {name: values[:40] for name, values in weights.items()})


def values(*shape):
    return RNG.standard_normal(shape).astype("f4")


DATASET = Dataset(
    pde="laplace",
    subdomain=Subdomain(4, 0.25),
    boundary=values(10, 16),
    solution=values(10, 5, 5),
    hyperparameters=values(10, 1),
    hyperparameter_names=("length_scale",),
    window_boundary=values(3, 16),
    window_solution=values(3, 5, 5),
    validation=0.2,
    seed=7,
)


def everything_of_solution(path):
    solution = read(path)
    large = solution.field, solution.error_map, solution.outside, solution.fields
    return large, vars(solution.boundary), solution.window, solution.history, solution.attributes


KINDS = {
    "solution": (write_solution, everything_of_solution),
    "boundary": (write_solution, lambda path: vars(read_boundaries(path, GRID)[0])),
    "checkpoint": (write_checkpoint, everything_of_checkpoint),
    "model": (write_small_model, read_model),
    "dataset": (DATASET.write, Dataset.read),
}


def attempt(read, path):
    """Return the message of what becomes one line and exit code 2, or what is read."""
    try:
        return None, read(path)
    except (ValueError, TypeError, OSError) as error:
        return str(error), None


def same(one, other):
    """Compare results of reading, arrays to the last bit."""
    if dataclasses.is_dataclass(one):
        one, other = vars(one), vars(other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True)
    return type(one) is type(other) and repr(one) == repr(other)


@pytest.mark.limit(60)
@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_byte_is_refused_in_one_line_or_changes_nothing(kind, tmp_path):
    write, read = KINDS[kind]
    path = tmp_path / "file.h5"
    write(path)
    content, expected = path.read_bytes(), read(path)
    rng = np.random.default_rng(1)
    refused = 0
    for place in rng.choice(len(content), PLACES, replace=False):
        damaged = bytearray(content)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        refusal, found = attempt(read, path)
        if refusal is None:
            assert same(found, expected), f"byte {place} of {len(content)}"
        else:
            assert str(path) in refusal
            assert "\n" not in refusal
            refused += 1
    # Only in the seal's first 16 bytes a change leaves a file without one, of a known format.
    assert refused >= PLACES - 5
