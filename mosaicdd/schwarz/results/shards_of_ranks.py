"""Shards: each rank writes its part of a field to a file of its own."""

import itertools
import secrets
from collections.abc import Iterable
from contextlib import AbstractContextManager

from mosaicdd.lattice.axes import Slices, within
from mosaicdd.parallel.collect import Part
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.storage.shards import (
    ShardFile,
    complete_shard,
    discard_shard,
    shard_folder,
    writing_shard,
)


def write_shards(
    output: str,
    ranks: Ranks,
    parts: Iterable[Part],
    place: Slices,
    dtype: str,
    clock: AbstractContextManager,
) -> list[ShardFile]:
    """Write every rank's parts of the field to a file of its own; return all of them.

    `OSError` on all ranks, if one could not write; no shard is left.
    ``place``: where this rank's parts together belong in the field of the file; a rank without any writes no file.
    ``clock``: measures the writing.
    """
    run = ranks.bcast(secrets.token_hex(4))
    path = shard_folder(output) / f"{run}-{ranks.rank:04d}.h5"
    # The first part comes after an exchange between the ranks, in which none may be missing.
    parts = iter(parts)
    first = list(itertools.islice(parts, 1))

    def write() -> ShardFile | None:
        shape = tuple(part.stop - part.start for part in place)
        if not first:
            return None
        with writing_shard(path, shape, dtype) as writer:
            for array, there in itertools.chain(first, parts):
                with clock:
                    writer.write("solution", array, within(there, place))
        return complete_shard(path, place)

    try:
        shard = ranks.agree(write)
    except BaseException:
        discard_shard(path)
        raise
    return [shard for shard in ranks.allgather(shard) if shard is not None]
