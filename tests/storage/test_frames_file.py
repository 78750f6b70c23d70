"""Files of frames: which of them the end of a march removes."""

import numpy as np

import mosaicdd as m
from mosaicdd.storage.field_file import RawFrames


def marched(output):
    problem = m.Problem((8, 8), "heat", {"f": 1.0})
    return m.march(problem, 0.0, dt=0.1, steps=2, output=output)


def test_frames_of_other_marches_stay_whatever_the_name(tmp_path):
    others = [tmp_path / name for name in ("run1.h5.frames.3", "run[1].h5.frames.x")]
    mine = tmp_path / "run[1].h5.frames.3"  # left by an earlier run on more ranks
    for path in (*others, mine):
        path.write_bytes(b"frames")
    marched(tmp_path / "run[1].h5")
    assert [path.read_bytes() for path in others] == [b"frames"] * 2
    assert not mine.exists()
    assert m.read(tmp_path / "run[1].h5").times.size == 3


def test_frames_that_are_open_stay(tmp_path):
    frames = RawFrames(tmp_path / "run.h5.frames.3", (2, 3))
    frames.write(0, np.ones((2, 3)), (slice(0, 2), slice(0, 3)))
    marched(tmp_path / "run.h5")
    np.testing.assert_array_equal(frames.read(0), np.ones((2, 3)))
    assert frames.path.exists()
    frames.close()
    marched(tmp_path / "run.h5")
    assert not frames.path.exists()
