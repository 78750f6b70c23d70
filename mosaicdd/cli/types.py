"""Parameter types that several commands share."""

import click

_MOST = 2**26


class SizePair(click.ParamType):
    """Two whole numbers as ``NXxNY``; gives ``(ny, nx)``, the order of axes in the package."""

    name = "NXxNY"

    def convert(self, value, param, ctx) -> tuple[int, int]:
        """Read the text; what is a pair already stays as it is."""
        if isinstance(value, tuple):
            return value
        parts = str(value).lower().split("x")
        if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
            self.fail(f"{value!r} is not of the form {self.name}, as in 2048x1024", param, ctx)
        if max(map(int, parts)) > _MOST:
            self.fail(f"{value!r}: at most {_MOST} along an axis", param, ctx)
        return int(parts[1]), int(parts[0])


SIZE_PAIR = SizePair()
