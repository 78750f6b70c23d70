"""Values on lattice lines are read where they are right only, and never while contributions travel."""

import functools

import pytest

from mosaicdd import Problem
from mosaicdd.schwarz.error_estimate import estimate_errors
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.monitor import Monitor
from mosaicdd.schwarz.residuals import OwnedNorms
from mosaicdd.solution.checkpoints import Checkpoints
from mosaicdd.solvers.outcome import History

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)


@pytest.fixture
def engine(make_lattice, make_solver, ranks):
    """Return a function that plans a solve on all ranks."""
    return functools.partial(make_solver, make_lattice((12, 13)), ranks=ranks)


def readers(engine, ranks, boundary, path):
    """Return by name what reads an interface of an engine."""
    v, movement = Interface(engine.block, **engine.settings.tensors), engine.movement
    other, iterate = v.like(), engine.method.iterate
    norms, fill = OwnedNorms(v), engine.method.plan_fill(engine.block)
    monitor = Monitor(ranks, engine.settings.stopping, v)
    problem = Problem(boundary.shape, "laplace", sides=boundary)
    checkpoints = Checkpoints(path, ranks, engine, problem, "exact", engine.settings)
    return {
        "sweep": lambda v: iterate(v, other),
        "norms": lambda v: norms.squares(v, other),
        "fill": lambda v: list(fill.strips(movement.widen(v, fill.block.halo))),
        "estimate": lambda v: estimate_errors(
            iterate, v, monitor, lambda _: [0.0], 1.0, exact=False
        ),
        "checkpoint": lambda v: checkpoints.save(v, [History()]),
        "gather": lambda v: movement.gather(v, 0, lambda *_: None),
    }


def test_six_readers_refuse_values_that_contributions_travel_to(
    engine, ranks, problem, common_path
):
    engine, path = engine(), common_path / "out.h5"
    boundary, _ = problem(engine.block.lattice)
    v, iterate = Interface(engine.block, **engine.settings.tensors), engine.method.iterate
    v.impose([boundary])
    reading, out = readers(engine, ranks, boundary, path), v.like_boundary()
    reading["checkpoint"](v)
    file = path.with_name("out.h5.checkpoint")
    before = file.read_bytes()
    iterate.begin(v)
    iterate.advance(v, out)
    for read in reading.values():
        with pytest.raises(RuntimeError, match=r"around 1 rings .* are read, and 0 rings"):
            read(out)
    assert file.read_bytes() == before
    iterate.finish()
    for read in reading.values():
        read(out)


def test_rings_that_are_right_grow_fewer_until_contributions_come(
    engine, comm, interface_of, problem
):
    depth = min(3, 12 // comm.size)
    engine = engine(halo_depth=depth)
    block, iterate = engine.block, engine.method.iterate
    _, field = problem(block.lattice)
    v = interface_of(block, field)
    out, right = v.like_boundary(), []
    iterate.begin(v)
    for _ in range(2 * depth + 1):
        iterate.advance(v, out)
        right.append(out.rings)
        for ring in range(depth if out.rings else 0):
            (batch,) = iterate._sweep.batches(block.ring(ring))
            if block.rings_around(batch) <= out.rings:
                iterate._sweep.restricted(out, batch)
                continue
            with pytest.raises(RuntimeError, match=f"and {out.rings} rings are right"):
                iterate._sweep.restricted(out, batch)
        v, out = out, v
    assert right == [0, *([*range(depth - 1, -1, -1)] * 2)]
    iterate.finish()
    assert v.rings == depth


def test_a_part_is_taken_of_complete_values(engine):
    engine = engine()
    v = Interface(engine.block, **engine.settings.tensors)
    v.part(engine.block)
    v.rings = 0
    with pytest.raises(RuntimeError, match="finish the iteration first"):
        v.part(engine.block)
