"""Values of elements one by one, taken from those at nodes and put back."""

import numpy as np
import pytest
import torch

from mosaicdd.local_solvers.elements.planes import NodeRow, Planes

_SIDE, _SPACING = 3, 6
_AT = torch.tensor([0, 2, 1]), torch.tensor([1, 0, 3])


@pytest.mark.parametrize("problems", [1, 3])
def test_values_of_elements_are_taken_and_put_back(problems: int) -> None:
    whole = torch.from_numpy(np.random.default_rng(0).standard_normal((problems, 30, 40)))
    values = whole[:, 4:23, 5:30]  # a part of rows, as of ranks
    planes = Planes.taken(values, _AT, _SIDE, _SPACING)
    for e, (y, x) in enumerate(zip(*_AT, strict=True)):
        for row, column in ((0, 0), (1, 4), (5, 2), (3, 3)):
            found = planes(NodeRow((row, column)), _SPACING // _SIDE)[0, :, 0, e]
            assert torch.equal(found, values[:, y * _SPACING + row, x * _SPACING + column])
    before = whole.clone()
    room = whole.zero_()[:, 4:23, 5:30]
    planes.put_at(room, _AT)
    for y, x in zip(*_AT, strict=True):
        place = (
            slice(4 + y * _SPACING, 10 + y * _SPACING),
            slice(5 + x * _SPACING, 11 + x * _SPACING),
        )
        assert torch.equal(whole[:, *place], before[:, *place])
        whole[:, *place] = 0.0
    assert not whole.any()


def test_what_stands_beside_sides_is_of_each_element() -> None:
    values = torch.arange(25.0 * 19).view(1, 19, 25)
    beside = Planes.taken(values, _AT, _SIDE, _SPACING).beside()
    for e, (y, x) in enumerate(zip(*_AT, strict=True)):
        nodes = values[0, y * _SPACING : (y + 1) * _SPACING, x * _SPACING : (x + 1) * _SPACING]
        for view, expected in zip(
            beside, (nodes[1], nodes[-1], nodes[:, 1], nodes[:, -1]), strict=True
        ):
            assert torch.equal(view[0, e].flatten(), expected)


def test_the_first_elements_come_apart_from_the_others() -> None:
    values = torch.arange(25.0 * 19).view(1, 19, 25)
    planes = Planes.taken(values, _AT, _SIDE, _SPACING)
    parts = planes.first(2)
    for part, some in zip(parts, (slice(0, 2), slice(2, 3)), strict=True):
        at = _AT[0][some], _AT[1][some]
        assert torch.equal(part.values, Planes.taken(values, at, _SIDE, _SPACING).values)
