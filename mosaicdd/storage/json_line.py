"""JSON for scripts: exactly one object on one line."""

import json
import math
from typing import Any


def json_line(report: dict) -> str:
    """Return a report as JSON, which knows no NaN and no infinity: these are null."""
    return json.dumps(_plain(report), allow_nan=False)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(entry) for name, entry in value.items()}
        case list() | tuple():
            return [_plain(entry) for entry in value]
        case float() if not math.isfinite(value):
            return None
    return value
