"""What is no foil, and where none are known: refused, in one sentence."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.storage.field_file import FieldFile

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
WALLS = {
    "left": m.Dirichlet(0.0),
    "right": m.Dirichlet(1.0),
    "bottom": m.Neumann(0.0),
    "top": m.Neumann(0.0),
}


@pytest.mark.parametrize(
    ("foil", "message"),
    [
        ({"where": [(0, 0.5), (2, 0.5)], "resistance": 1}, r"the foil through \(2, 0.5\) reaches out of the domain, which goes from \(0, 0\) to \(1, 1\)"),
        ({"where": [(0, 0.5), (1, 0.6)], "resistance": 1}, r"foils go along axes, and from \(0, 0.5\) to \(1, 0.6\) is not a line along one axis"),
        ({"where": [(0, 0, 0), (1, 1, 1)], "resistance": 1}, "is not a rectangle across one axis"),
        ({"where": [(0, 0.5)], "resistance": 1}, "two or more points"),
        ({"where": [(0, 0.5), (1, 0.5)], "resistance": -1}, "must be finite and not negative, got -1"),
        ({"where": [(0, 0.5), (1, 0.5)]}, "both are 0"),
        ({"where": [(0, 0.5), (1, np.nan)], "resistance": 1}, "not finite"),
        ({"where": [(0, 0), (0, 1)], "resistance": 0.5}, r"the foil at x = 0 resists along a side of the domain: give the side an exchange instead, Robin\(2, ..\)"),
        ({"where": [(0, 0, 0.5), (1, 1, 0.5)], "resistance": 1}, r"has 3 coordinates, the domain 2: give \(x, y\)"),
    ],
)  # fmt: skip
def test_what_is_no_foil_is_refused(foil, message):
    with pytest.raises(ValueError, match=message):
        m.Problem(m.Domain((32, 32), 1 / 32), "diffusion", {"a": m.Foils([m.Foil(**foil)])})


def test_no_foils_at_all_are_refused():
    with pytest.raises(ValueError, match="there are no foils: give one at least"):
        m.Foils([])


@pytest.mark.parametrize(
    ("pde", "name", "others", "message"),
    [
        ("diffusion", "c", {}, "foils lie in the diffusion, a, got them as the field c"),
        ("poisson", "f", {}, "got them as the field f"),
        ("advection-diffusion", "a", {"bx": 1.0}, "in media without a velocity"),
        ("bilinear-diffusion", "a", {}, "without mixed derivatives, as axy, or bilinear elements"),
        ("quasilinear-diffusion", "a", {}, "foils lie in media of linear equations"),
    ],
)
def test_where_foils_are_not_known_they_are_refused(pde, name, others, message):
    foils = m.Foils([m.Foil([(0, 0.5), (1, 0.5)], 1.0)])
    with pytest.raises(ValueError, match=message):
        m.Problem(m.Domain((32, 32), 1 / 32), pde, {name: foils, **others})


def test_a_plan_is_not_for_other_foils_in_a_medium_of_a_file(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((33, 33)))
    medium = FieldFile(tmp_path / "a.npy")
    each = (m.Foils([m.Foil([(0.5, 0), (0.5, 1)], r)], medium) for r in (1.0, 9.0))
    one, other = (m.Problem(m.Domain((32, 32), 1 / 32), "diffusion", {"a": a}, WALLS) for a in each)
    with pytest.raises(ValueError, match="the problem has another field a: make a new one"):
        m.Solver(one)(other)


@RANKS
@pytest.mark.parametrize(("axes", "kind"), [(2, "resistance"), (3, "conductance")])
def test_a_foil_through_a_hole_is_refused(axes, kind, comm):
    cells = 48 if axes == 2 else 24
    mask = np.ones((cells,) * axes, bool)
    mask[(slice(cells * 3 // 8, cells * 5 // 8),) * axes] = False
    domain = m.Domain.from_mask(mask, 1 / cells, per_cell=True)
    outline = m.Dirichlet(0.0) if axes == 2 else m.Neumann(0.0)
    for at, holds in ((0.5, False), (0.25, True)):
        where = [(0, at), (1, at)] if axes == 2 else [(0, 0, at), (1, 1, at)]
        foils = m.Foils([m.Foil(where, **{kind: 1.0})])
        sides = {"left": m.Dirichlet(1.0), "outline": outline}
        problem = m.Problem(domain, "diffusion", {"a": foils}, sides)
        if holds:
            assert m.solve(problem, "exact", ranks=comm).converged
            continue
        with pytest.raises(ValueError, match="a foil goes through a hole, or out of the domain"):
            m.solve(problem, "exact", ranks=comm)
