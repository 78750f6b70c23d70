"""Solution files of given fields, written part by part as ranks do, in one file or in shards."""

import numpy as np

from mosaicdd.grid.grid import Grid
from mosaicdd.grid.window import Window
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.storage.shards import shard_folder, write_shard
from mosaicdd.storage.solution_writer import RankPart, SolutionWriter, write_fields

HISTORY = {"update": [1.0]}


def pieces(nodes, count):
    """Cut rows into as many slices."""
    return [slice(int(r[0]), int(r[-1]) + 1) for r in np.array_split(np.arange(nodes), count)]


def in_shards(path, values, places, dtype="float64", run="00"):
    """Write an array in shards, one of each place."""
    shards = []
    for rank, place in enumerate(places):
        shard = shard_folder(path) / f"{run}-{rank:04d}.h5"
        shards.append(write_shard(shard, [(values[place], place)], place, dtype))
    return shards


def store(path, fields, *, spacing=0.25, window=None, dtype="float64", places=None, run="00", given=None,
          estimates=None, histories=None, edges=None, problems=None, empty=(), grid=None, **attributes):  # fmt: skip
    """Write one solution or several, fields ``(n, *nodes)``; of a window ``(start, stop)`` only; return the path.

    ``places`` are those of shards; ``edges``, fields whose edges are the boundary data, the fields
    themselves where they are not given; ``problems``, what differs between them; ``empty``, those not solved.
    """
    fields = np.asarray(fields)
    count = len(fields)
    grid = grid or Grid(tuple(n - 1 for n in fields.shape[1:]), spacing)
    window = Window.whole(grid) if window is None else Window(*window)
    seen = fields[:, *window.place]
    boundaries = [Boundary.of_field(np.nan_to_num(f)) for f in (fields if edges is None else edges)]
    shards = places and in_shards(path, seen if count > 1 else seen[0], places, dtype, run)
    part = RankPart(grid=grid, window=window, own=window.place, dtype=dtype)
    with SolutionWriter(path, part, boundaries) as writer:
        writer.begin(shards=shards)
        writer.on_root(lambda file: write_fields(file, given or {}, len(grid.shape)))
        for problem in range(count if places is None else 0):
            if problem in empty:
                continue
            for rows in pieces(seen.shape[1], 2):
                place = (slice(problem, problem + 1), rows, *(slice(0, n) for n in seen.shape[2:]))
                writer.write("solution", seen[place], place)
        if estimates is not None:
            writer.create("error_estimate", estimates.shape[1:], "float64")
            writer.write("error_estimate", estimates, tuple(slice(0, n) for n in estimates.shape))
        told = {"pde": "laplace", "problems": problems or [{"iterations": 1}] * count} | attributes
        writer.describe(told, histories or [HISTORY] * count, empty)
    return path
