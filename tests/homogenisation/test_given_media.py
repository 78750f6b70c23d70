"""Media as people have them: with coordinates, as pictures, in bytes."""

import numpy as np
import pytest

import mosaicdd as m

RNG = np.random.default_rng(0)
GREYS = RNG.uniform(1.0, 10.0, (20, 20))
BYTES = np.where(RNG.random((24, 20)) < 0.8, 255, 0).astype(np.uint8)


def labelled(values, dims=("y", "x"), **coords):
    return pytest.importorskip("xarray").DataArray(values, dims=dims, coords=coords)


def along(n, step):
    return step * (np.arange(n) + 0.5)


@pytest.mark.parametrize("turn", [lambda k: k, lambda k: k.T, lambda k: k[::-1]])
def test_coordinates_say_how_far_apart_voxels_are(turn):
    given = labelled(GREYS, y=along(20, 3.0), x=along(20, 1.0))
    expected = m.effective(GREYS, spacing=(3.0, 1.0))
    assert str(m.effective(turn(given))) == str(expected)
    assert str(m.effective(given, spacing=(3.0, 1.0))) == str(expected)
    assert str(m.effective(given, spacing={"x": 1.0, "y": 3.0})) == str(expected)
    assert str(m.effective(labelled(GREYS))) == str(m.effective(GREYS))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: m.effective(labelled(GREYS, y=along(20, 3.0), x=along(20, 1.0)), 1.0), "the medium has coordinates 3 apart along y, the grid has a spacing of 1: give"),
        (lambda: m.effective({"x": GREYS, "y": labelled(GREYS + 1, y=along(20, 3.0), x=along(20, 1.0))}, 1.0), "coordinates 3 apart along y"),
        (lambda: m.effective({"x": labelled(GREYS, y=along(20, 2.0), x=along(20, 1.0)), "y": labelled(GREYS + 1, y=along(20, 3.0), x=along(20, 1.0))}), "coordinates 2 apart along y, the grid has a spacing of 3"),
        (lambda: m.effective(labelled(GREYS, y=along(20, 3.0))), "no two coordinates along x, .*: give the spacing"),
        (lambda: m.effective(BYTES), r"bytes of 0 and 255 as of a picture: give medium > 127"),
        (lambda: m.effective(np.full((12, 12), 255, np.uint8)), r"bytes of 0 and 255"),
        (lambda: m.effective(np.stack([BYTES] * 3, axis=-1)), r"the shape \(24, 20, 3\) looks like a picture in colours"),
        (lambda: m.effective(np.stack([BYTES] * 4, axis=-1)), r"the shape \(24, 20, 4\) looks like a picture in colours"),
        (lambda: m.effective((RNG.integers(1, 256, (24, 20, 3)) / 255).astype(np.float32)), "looks like a picture in colours"),
        (lambda: m.effective(RNG.integers(1, 256, (24, 20, 3)) / 255), r"\(24, 20, 3\) looks like a picture .* a box of voxels with its 3 along another axis"),
        (lambda: m.effective(RNG.integers(0, 256, (24, 20, 4)) / 255), r"looks like a picture in colours"),
    ],
)  # fmt: skip
def test_what_contradicts_or_is_a_picture_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "box",
    [
        np.ones((24, 20, 3), np.uint8),
        RNG.integers(1, 9, (5, 5, 3)).astype(np.uint8),
        RNG.integers(1, 256, (24, 20, 3)).astype(float),
        RNG.integers(1, 10, (24, 20, 3)) / 10,
        RNG.choice([0.2, 0.4, 1.0], (24, 20, 3)),
        RNG.integers(1, 256, (3, 24, 20)) / 255,
        RNG.uniform(0.5, 1.0, (24, 20, 3)).astype(np.float32),
        RNG.random((24, 20, 4)) < 0.9,
        RNG.integers(1, 256, (24, 3, 20)).astype(np.uint8),
    ],
)
def test_a_thin_box_is_one(box):
    assert str(m.effective(box, axis="y")) == str(m.effective(box.astype(float), axis="y"))


def test_a_picture_of_three_greys_has_conductivities():
    k = np.where(BYTES, 255, 1).astype(np.uint8)
    assert str(m.effective(k)) == str(m.effective(k.astype(float)))
    assert str(m.effective(BYTES > 127)) == str(m.effective((BYTES > 127).astype(np.uint8)))
