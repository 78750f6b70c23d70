"""The settings of random data in a text: ``seed=0,length=1.5``."""

from collections.abc import Mapping

from mosaicdd.settings import meant

_LIMIT = 1e12


def read_settings(
    kind: str, text: str, known: Mapping[str, tuple[type[int] | type[float], float]]
) -> dict[str, float]:
    """Read ``NAME=VALUE,...``; return the values that are given, by name.

    `ValueError` if a setting is unknown, given twice, no number or out of range.
    ``kind``: what is set, for messages; ``known``: of each setting its type and its least value.
    """
    settings: dict[str, float] = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        if name not in known:
            raise ValueError(
                f"{kind}: has no setting {name!r}{meant(name, known)}; known: {', '.join(known)}"
            )
        if name in settings:
            raise ValueError(f"{kind}:{name} is given twice")
        number, low = known[name]
        try:
            settings[name] = number(value)
        except ValueError:
            raise ValueError(f"{kind}:{name} must be a number, got {value!r}") from None
        if not low <= settings[name] < _LIMIT:
            raise ValueError(f"{kind}:{name} must be in [{low:g}, {_LIMIT:g}), got {value}")
    return settings
