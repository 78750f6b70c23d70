"""Where the time of a solve goes: seconds by part, and a trace of when each part ran."""

import json
import time
from typing import NamedTuple

from mosaicdd.parallel.ranks import Ranks
from mosaicdd.storage.atomic import MARK, atomic_file


class Event(NamedTuple):
    """One run of a part; begin and end in seconds of this machine's clock."""

    name: str
    lane: str
    begin: float
    end: float


class Stopwatch:
    """Adds up seconds by part.

    ``traced``: whether to keep begin and end of every part, for `events`.
    """

    def __init__(self, *, traced: bool = False):
        self.started = time.perf_counter()
        self._parts: dict[str, Part] = {}
        self.events: list[Event] | None = [] if traced else None

    def part(self, name: str, lane: str = "work") -> "Part":
        """Return what measures a part, as ``with stopwatch.part(name):``.

        Parts of one lane do not nest: ``"work"`` of this rank, and ``"messages"`` on their way.
        """
        if name not in self._parts:
            self._parts[name] = Part(name, lane, self.events)
        return self._parts[name]

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of work spent in each part so far."""
        return {part.name: part.seconds for part in self._parts.values() if part.lane == "work"}


class Part:
    """One part of the work; entered again and again, it allocates nothing."""

    def __init__(self, name: str, lane: str, events: list[Event] | None):
        self.name = name
        self.lane = lane
        self.seconds = 0.0
        self._events = events
        self._began: float | None = None

    def begin(self) -> None:
        """Start the clock."""
        self._began = time.perf_counter()

    def end(self) -> None:
        """Stop the clock, if it runs."""
        if self._began is None:
            return
        end = time.perf_counter()
        self.seconds += end - self._began
        if self._events is not None:
            self._events.append(Event(self.name, self.lane, self._began, end))
        self._began = None

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *failure: object) -> None:
        self.end()


def write_trace(path: str, ranks: Ranks, clock: Stopwatch) -> None:
    """Let the root write the events of all ranks: one process per rank, work and messages apart."""
    gathered = ranks.gather(clock.events) or []
    ranks.on_root(lambda: _write_trace(path, gathered))


def _write_trace(path: str, gathered: list[list[Event]]) -> None:
    start = min(event.begin for events in gathered for event in events)
    lanes = {"work": 0, "messages": 1}
    entries = [
        {"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}}
        for rank in range(len(gathered))
    ]
    entries += [
        {"name": "thread_name", "ph": "M", "pid": rank, "tid": tid, "args": {"name": lane}}
        for rank in range(len(gathered))
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
        temporary.write_text(json.dumps({"otherData": {"by": MARK}, "traceEvents": entries}))
