"""Marches that end before their last step, and leave a checkpoint."""

from mosaicdd.time.march import March
from mosaicdd.time.settings import TimeSettings


def interrupted(problem, initial, after, output, *, ranks=None, settings=None, **time):
    """March until a share of all steps is taken, and return what there is then."""
    how = {"ranks": ranks, "settings": settings, "output": output}
    with March(problem, initial, TimeSettings(**time), **how) as marching:
        part = marching(lambda done, note: marching.interrupt() if done >= after else None)
    assert part.status == "interrupted"
    return part
