"""Pictures as domains: light is inside, dark and clear outside, however many bits and channels they have."""

import numpy as np
import pytest

from mosaicdd.storage.domain_file import read_domain

Image = pytest.importorskip("PIL.Image")

INSIDE = np.zeros((24, 32), bool)
INSIDE[4:20, 6:28] = True
LIGHT = np.where(INSIDE, 255, 0).astype(np.uint8)[::-1]  # the upper row first
WHITE = np.full_like(LIGHT, 255)


def _palette():
    picture = Image.fromarray(np.where(LIGHT, 1, 0).astype(np.uint8)).convert("P")
    picture.putpalette([255, 255, 255] * 2)
    picture.info["transparency"] = bytes([0, 255])
    return picture


def _named_clear():
    picture = Image.fromarray(np.where(LIGHT[..., None], 255, [250, 251, 252]).astype(np.uint8))
    picture.info["transparency"] = (250, 251, 252)
    return picture


PICTURES = {
    "grey": lambda: Image.fromarray(LIGHT),
    "bits": lambda: Image.fromarray(LIGHT).convert("1"),
    "colours": lambda: Image.fromarray(np.stack([LIGHT] * 3, axis=-1)),
    "clear outside": lambda: Image.fromarray(np.stack([WHITE] * 3 + [LIGHT], axis=-1)),
    "clear grey": lambda: Image.merge("LA", [Image.fromarray(a) for a in (WHITE, LIGHT)]),
    "half clear": lambda: Image.merge("LA", [Image.fromarray(a) for a in (WHITE, np.where(LIGHT, 200, 100).astype(np.uint8))]),
    "opaque": lambda: Image.merge("LA", [Image.fromarray(a) for a in (LIGHT, WHITE)]),
    "palette": _palette,
    "a clear colour": _named_clear,
    "16 bits": lambda: Image.fromarray(np.where(LIGHT, 60000, 1000).astype(np.uint16)),
    "8 of 16 bits": lambda: Image.fromarray(np.where(LIGHT, 255, 0).astype(np.uint16)),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_light_is_inside_and_what_is_clear_is_not(name, tmp_path):
    path, picture = tmp_path / "domain.png", PICTURES[name]()
    options = {"transparency": picture.info["transparency"]} if picture.info else {}
    picture.save(path, **options)
    domain = read_domain(str(path), INSIDE.shape, 1.0)
    level = domain.shape.level(domain.grid(), (slice(0, 25), slice(0, 33)))
    expected = np.zeros((25, 33), bool)
    expected[5:20, 7:28] = True  # with cells of the domain all around
    np.testing.assert_array_equal(level < 0, expected)


def test_a_header_of_a_huge_picture_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "domain.png"
    Image.fromarray(LIGHT).save(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(
        ValueError, match=r"exceeds limit of 200 pixels.* give the mask as FILE\.npy"
    ):
        read_domain(str(path), INSIDE.shape, 1.0)
