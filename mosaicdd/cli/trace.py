"""What every rank did when, in the format of Chrome's trace viewer."""

import json

from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.stopwatch import Stopwatch
from mosaicdd.storage.atomic import atomic_file


def write_trace(path: str, ranks: Ranks, clock: Stopwatch) -> None:
    """Let the root write the events of all ranks: one process per rank, work and messages apart."""
    gathered = ranks.gather(clock.events)
    if gathered is None:
        return
    start = min(event.begin for events in gathered for event in events)
    lanes = {"work": 0, "messages": 1}
    entries = [
        {"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}}
        for rank in range(ranks.size)
    ]
    entries += [
        {"name": "thread_name", "ph": "M", "pid": rank, "tid": tid, "args": {"name": lane}}
        for rank in range(ranks.size)
        for lane, tid in lanes.items()
    ]
    entries += [
        {
            "name": event.name,
            "ph": "X",
            "pid": rank,
            "tid": lanes[event.lane],
            "ts": 1e6 * (event.begin - start),
            "dur": 1e6 * (event.end - event.begin),
        }
        for rank, events in enumerate(gathered)
        for event in events
    ]
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps({"traceEvents": entries}))
