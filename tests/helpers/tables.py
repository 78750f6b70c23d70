"""Tables of command lines that are refused, with what is said of each."""

import pytest


def table(base, *rows):
    """Return the mark of a test of ``words`` and ``message``: a row is what follows the base, and the message."""
    cases = [pytest.param(f"{base} {words}", message, id=words) for words, message in rows]
    return pytest.mark.parametrize(("words", "message"), cases)
