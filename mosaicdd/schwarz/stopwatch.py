"""Where the time of a solve goes: seconds by part, and a trace of when each part ran."""

import time


class Stopwatch:
    """Adds up seconds by part.

    Parameters
    ----------
    traced
        Whether to keep begin and end of every part, for `events`.
    """

    def __init__(self, *, traced: bool = False):
        self._parts: dict[str, _Part] = {}
        self.events: list[tuple[str, float, float]] | None = [] if traced else None

    def part(self, name: str) -> "_Part":
        """Return what measures a part, as ``with stopwatch.part(name):``; parts do not nest."""
        if name not in self._parts:
            self._parts[name] = _Part(name, self.events)
        return self._parts[name]

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds spent in each part so far."""
        return {name: part.seconds for name, part in self._parts.items()}


class _Part:
    """One part of the work; entered again and again, it allocates nothing."""

    def __init__(self, name: str, events: list | None):
        self._name = name
        self._events = events
        self._begin = 0.0
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *failure) -> None:
        end = time.perf_counter()
        self.seconds += end - self._begin
        if self._events is not None:
            self._events.append((self._name, self._begin, end))
