"""Arguments of a kind that they cannot be are refused in one line that names them."""

import numpy as np
import pytest

import mosaicdd as m

LAPLACE = m.Problem((16, 16), "laplace", None, m.Dirichlet("x"))
HEAT = m.Problem((16, 16), "heat", {"f": 1.0})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: m.Domain((8, 8), 0.1, "a text"), r"shape of a domain is made by Domain.from_mask, .*got str"),
        (lambda: m.Domain((8, 8), 0.1, np.ones((8, 8))), "Domain.from_polygons, got ndarray"),
        (lambda: m.Domain((8, 8), shape=m.Domain((8, 8))), "Domain.from_polygons, got Domain"),
        (lambda: m.Domain.from_polygons([(0, 0), (1, 0), (1, 1)], 3, cells=(8, 8)), "holes are polygons, .*got int"),
        (lambda: m.march(HEAT, 0.0, dt=0.1, steps=2, settings=3), "settings must be a SolveSettings, got int"),
        (lambda: m.march(HEAT, 0.0, dt=0.1, steps=2, settings="x", rtol=1e-3), "settings must be a SolveSettings, got str"),
        (lambda: m.compare(3, "dst"), "solution must be a solution, or the path of its file, got int"),
        (lambda: m.Foils(3), "foils are several of the class Foil, got int"),
        (lambda: m.solve(LAPLACE).flow(3), "side must be the name of a side, or of a part of one, got int"),
        (lambda: m.Problem((8, 8), "poisson", {3: 1.0}), "the name of a field must be a text, got int"),
    ],
)  # fmt: skip
def test_a_wrong_kind_is_refused_in_one_line(call, message):
    with pytest.raises(TypeError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
