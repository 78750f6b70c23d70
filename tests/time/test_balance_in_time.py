"""Balances of marches against sums made here, for all ways of stepping, sides and shapes; in files, pages and JSON; on ranks."""

import json
from dataclasses import replace

import numpy as np
import pytest
from interrupted_marches import interrupted

import mosaicdd as m

NY, NX, H, DT, STEPS = 32, 40, 0.1, 0.05, 4
TIGHT = {"settings": m.SolveSettings(rtol=1e-13), "solver_share": 0}
TIME = {"dt": DT, "steps": STEPS}
Y, X = np.mgrid[0 : NY + 1, 0 : NX + 1] * H
CLOSE = {"rel": 1e-10}


def drawn(shape, seed=0):
    return np.random.default_rng((seed, *shape)).uniform(0.5, 2.0, shape)


def ends(count):
    return np.r_[0.5, np.ones(count - 1), 0.5]


VOLUMES = np.outer(ends(NY), ends(NX))  # in cells
SIDES = {"left": m.Robin(2.0, "1 + t"), "right": m.Neumann(0.3), "top": m.Robin(0.5, "x")}
SIDES |= {"bottom": m.Dirichlet("1 + sin(3*t)")}
NODES = NY + 1, NX + 1


def per_node(cells):
    """Return the means of the cells around each node."""
    known = np.pad(cells, 1), np.pad(np.ones(cells.shape), 1)
    sums, counts = (p[1:, 1:] + p[:-1, 1:] + p[1:, :-1] + p[:-1, :-1] for p in known)
    return sums / counts


def stages(fields, method):
    """Yield of each step its stage's time and values, and what ``du/dt`` is there."""
    for n in range(STEPS):
        old, new = fields[n], fields[n + 1]
        if method == "bdf2" and n:
            yield (n + 1) * DT, new, (1.5 * new - 2 * old + 0.5 * fields[n - 1]) / DT
            continue
        share = {"euler": 1.0, "bdf2": 2 / 3, "crank-nicolson": 0.5}[method]
        yield (n + share) * DT, share * new + (1 - share) * old, (new - old) / DT


def total_of(parts, method):
    """Return what flows in all steps, from what flows per time at each stage, as the method integrates it."""
    each = np.array(parts)
    for n in range(1, STEPS if method == "bdf2" else 0):  # 3/2 (C - C_n) = dt F + (C_n - C_n-1) / 2
        each[n] = (2 * each[n] + each[n - 1]) / 3
    return DT * each.sum(axis=0)


@pytest.mark.parametrize("method", ["euler", "bdf2", "crank-nicolson"])
@pytest.mark.parametrize("stored", ["nothing", "nodes", "cells"])
def test_all_parts_are_those_of_sums_made_here(method, stored):
    s = {"nothing": 1.0, "nodes": drawn(NODES), "cells": drawn((NY, NX))}[stored]
    fields = {"a": 2.0, "s": s, "c": "0.2*x", "f": "x*t"}
    if stored == "nothing":
        fields = {"f": "x*t"}
    problem = m.Problem(m.Domain((NY, NX), H), "heat", fields, SIDES)
    series = m.march(problem, "x*y", method=method, **TIME, **TIGHT)
    s = per_node(s) if stored == "cells" else s
    a, c = fields.get("a", 1.0), 0.2 * X if "c" in fields else 0 * X
    names, parts = ("sources", "reaction", "stored", "left", "right", "top", "bottom"), []
    for t, u, rate in stages([*series], method):
        # All that comes to the volumes of nodes with given values, and is neither stored nor consumed, goes out.
        f = X * t
        left = H * (2.0 * u[:, 0] - (1 + t)) * ends(NY)
        top = H * (0.5 * u[-1] - X[-1]) * ends(NX)
        rest = (f - c * u - s * rate) * VOLUMES * H**2
        bottom = rest[0].sum() + (a * (u[1] - u[0]) * ends(NX)).sum() - left[0] + 0.3 * H / 2
        now = (f * VOLUMES * H**2).sum(), (c * u * VOLUMES * H**2).sum()
        now += (s * rate * VOLUMES * H**2).sum(), left.sum(), -0.3 * NY * H, top.sum(), bottom
        parts.append(now)
    total = dict(zip(names, total_of(parts, method), strict=True))
    # What is stored is what the last field has more than the first one.
    gained = (s * (series[-1] - series[0]) * VOLUMES * H**2).sum()
    assert total["stored"] == pytest.approx(gained, **CLOSE)
    balance = series.balance()
    for name in ("sources", "reaction", "stored"):
        assert getattr(balance, name) == pytest.approx(total[name], **CLOSE, abs=1e-12), name
    for name, flow in balance.flows.items():
        assert flow == pytest.approx(total[name], **CLOSE, abs=1e-11), name
    assert balance.relative < 1e-11
    assert abs(balance.left_over) > 0.0
    assert series.report["balance"] == balance.described()


def on_an_l():
    mask = np.ones((NY, NX), bool)
    mask[16:, 20:] = False
    sides = {"left": m.Dirichlet("t"), "outline": m.Robin(1.5, 0.7), "bottom": m.Neumann(1.0)}
    return m.Domain.from_mask(mask, H, per_cell=True), sides, {"s": "1 + x", "c": "y"}


def ring(**sides):
    domain = m.Domain.from_distance("abs(hypot(x - 2, y - 1.6) - 0.9) - 0.4", (NY, NX), H)
    return domain, sides, {"a": "1 + x", "s": "1 + y", "c": "y"}


RECTANGLE = m.Domain((NY, NX), H)
AROUND = {"left": m.Periodic(), "right": m.Periodic()}
CHANGING = {"a": "1 + x*t", "s": "1 + y*t", "c": "t"}
CASES = {
    "L": on_an_l(),
    "ring": ring(outer=m.Robin(1.0, 0.5), hole1=m.Dirichlet("t")),
    "ring the other way": ring(outer=m.Dirichlet("x"), hole1=m.Neumann("x*t")),
    "coefficients that change": (RECTANGLE, SIDES, CHANGING),
    "periodic": (RECTANGLE, AROUND | {"top": m.Robin(2.0, 1.0)}, {"a": drawn((NY, NX)), "c": 0.1}),
    "flat cells": (m.Domain((NY, NX), (0.1, 0.2)), SIDES, {"a": drawn((NY, NX)), "s": "1 + x"}),
    "flow": (RECTANGLE, {"left": m.Dirichlet("y")}, {"bx": "y", "by": "-x"}),
    "held": (RECTANGLE, SIDES | {"pipe": m.Held("hypot(x - 2, y - 1.5) < 0.5", "t")}, {}),
    "box": (
        m.Domain((8, 10, 12), H),
        {"left": m.Robin(2.0, "t"), "front": m.Dirichlet("x"), "right": m.Neumann(0.3)},
        {"a": "1 + x", "s": drawn((8, 10, 12)), "c": 0.2},
    ),
}


def marched(case, **how):
    domain, sides, fields = CASES[case]
    pde = "advection-diffusion" if "bx" in fields else "heat"
    problem = m.Problem(domain, pde, fields | {"f": "x*t"}, sides)
    return m.march(problem, "x*y", **TIME, **TIGHT | how)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", ["bdf2", "crank-nicolson"])
def test_nothing_is_lost(case, method):
    balance = marched(case, method=method).balance()
    assert balance.relative < 1e-11
    parts = balance.flows | {"sources": balance.sources, "stored": balance.stored}
    assert all(abs(part) > 1e-6 for part in parts.values())
    assert bool(balance.carried) is (case == "flow")


def test_what_an_l_stores_and_consumes_are_sums_made_here():
    fields = [*marched("L", method="euler")]
    inside = np.pad(np.ones((NY, NX)), 1)
    inside[17:, 21:] = 0.0  # and around all of it
    inside[-1] = inside[:, -1] = 0.0
    volumes = sum(inside[i : NY + 1 + i, j : NX + 1 + j] for i in (0, 1) for j in (0, 1)) / 4
    weights = H**2 * volumes
    balance = marched("L", method="euler").balance()
    gained = np.nansum(weights * (1 + X) * (fields[-1] - fields[0]))
    assert balance.stored == pytest.approx(gained, **CLOSE)
    consumed = sum(DT * np.nansum(weights * Y * u) for u in fields[1:])
    assert balance.reaction == pytest.approx(consumed, **CLOSE)
    times = DT * np.arange(1, STEPS + 1)
    assert balance.sources == pytest.approx(DT * times.sum() * (weights * X).sum(), **CLOSE)
    assert balance.flows["bottom"] == pytest.approx(-NX * H * STEPS * DT, **CLOSE)


def test_what_is_given_within_a_solve_s_error_shows():
    rough = {"settings": m.SolveSettings(rtol=1e-3)}
    assert 1e-8 < marched("L", **rough).balance().relative < 1e-2


def test_chosen_steps_balance_and_those_taken_back_do_not_count():
    domain, sides, fields = CASES["coefficients that change"]
    problem = m.Problem(domain, "heat", fields | {"f": "10*(t > 0.12)"}, sides)
    series = m.march(problem, "x*y", **TIME, tolerance=1e-2, every=2, **TIGHT)
    balance = series.balance()
    assert balance.relative < 1e-10
    assert len(series.steps["stored"]) == len(series.steps["time"]) == series.report["steps"]
    # One flux is the same at all times.
    assert balance.flows["right"] == pytest.approx(-0.3 * NY * H * STEPS * DT, **CLOSE)
    half = series.balance(1)
    assert half.flows["right"] == pytest.approx(balance.flows["right"] / 2, **CLOSE)
    assert half.relative < 1e-10


def test_where_nothing_flows_nothing_is_told_to_be_lost():
    at_rest = m.Problem(RECTANGLE, "heat", {"s": "1 + x"}, m.Dirichlet(20.0))
    balance = m.march(at_rest, 20.0, **TIME).balance()
    assert balance.relative == 0.0
    steady = m.solve(m.Problem((64, 64), "diffusion", {"a": "1 + x"}, m.Dirichlet(293.0))).balance()
    assert max(map(abs, steady.flows.values())) > 0.0
    assert steady.relative == 0.0
    assert replace(steady, sources=1.0).relative > 1.9


@pytest.mark.parametrize("method", ["euler", "bdf2", "crank-nicolson"])
@pytest.mark.parametrize("name", ["allen-cahn", "quasilinear-diffusion", "burgers"])
def test_what_is_not_linear_loses_nothing(name, method):
    sides = {"left": m.Dirichlet("1 + sin(3*t)"), "right": m.Robin(2.0, 0.5), "top": m.Neumann(0.3)}
    fields = {
        "allen-cahn": {"eps": 0.7, "f": "x*t"},
        "quasilinear-diffusion": {"k": "1 + u**2", "c": "0.2*x", "f": "x*t"},
        "burgers": {"nu": 0.5, "f": "x*t"},
    }[name]
    problem = m.Problem(m.Domain((NY, NX), H), name, fields, sides | {"bottom": m.Neumann(0.0)})
    series = m.march(problem, "0.1*x*y", method=method, **TIME, rtol=1e-11, solver_share=0)
    every = []
    for t, u, rate in stages([*series], method):
        reaction = {"allen-cahn": u**3 - u, "quasilinear-diffusion": 0.2 * X * u}.get(name, 0 * u)
        right = H * (2.0 * u[:, -1] - 0.5) * ends(NY)
        parts = (X * t, reaction, rate)
        every.append([*((p * VOLUMES * H**2).sum() for p in parts), right.sum()])
    total = total_of(every, method)
    balance = series.balance()
    assert balance.relative < 1e-8
    known = [balance.sources, balance.reaction, balance.stored, balance.flows["right"]]
    np.testing.assert_allclose(known, total, rtol=1e-7, atol=1e-8)
    assert balance.flows["top"] == pytest.approx(-0.3 * NX * H * DT * STEPS)
    assert bool(balance.carried) is (name == "burgers")


def test_what_is_not_linear_in_a_shape_has_none():
    disk = m.Domain.from_distance("hypot(x-0.5,y-0.5)-0.4", (32, 32), 1 / 32)
    series = m.march(m.Problem(disk, "allen-cahn"), "x", dt=0.1, steps=1)
    assert series.report["balance"] is None
    with pytest.raises(m.Unsupported, match="allen-cahn in time has no balance"):
        series.balance()


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("case", ["shape", "periodic", "box", "not linear"])
def test_ranks_have_the_same(comm, by_one, case):
    cells = (24, 28, 32) if case == "box" else (96, 128)
    outline = "maximum(abs(hypot(x - 2, y - 1.5) - 0.9) - 0.5, -x)"
    domain, sides = m.Domain(cells, 1 / 32), {"left": m.Robin(2.0, "y + t")}
    if case == "shape":
        domain = m.Domain.from_distance(outline, cells, 1 / 32)
        sides = {"outer": m.Robin(1.5, 0.7), "hole1": m.Dirichlet("t")}
    if case == "periodic":
        sides |= {"bottom": m.Periodic(), "top": m.Periodic()}
    fields = {"a": "1 + x", "s": "1 + y", "c": 0.3, "f": "x*t"}
    problem = m.Problem(domain, "heat", fields, sides)
    if case == "not linear":
        fields = {"k": "1 + u**2", "c": 0.3, "f": "x*t"}
        problem = m.Problem(domain, "quasilinear-diffusion", fields, sides)

    def balanced(ranks=None):
        return m.march(problem, "x*y", dt=0.02, steps=3, ranks=ranks, **TIGHT).balance()

    mine, expected = balanced(comm), by_one(balanced)
    for name, value in expected.numbers().items():
        assert mine.numbers()[name] == pytest.approx(value, rel=1e-9, abs=1e-11), name
    assert mine.relative < 1e-10


@pytest.mark.ranks(1, 2)
def test_files_pages_and_json_have_it(mosaicdd, common_path, comm):
    path = common_path / "heat.h5"
    heat = ("--pde", "heat", "--cells", "64x48", "--boundary", "expr:t", "--initial", "expr:x*y")
    how = ("--field", "f=expr:x*t", "--dt", "0.05", "--steps", "4", "--every", "2")
    shown = mosaicdd("solve", "-o", path, "--json", *heat, *how, "--side", "left=neumann:1")
    if comm.rank:
        return
    told = json.loads(shown.out)["balance"]
    opened = m.read(path).balance()
    assert told == opened.described() == m.read(path).attributes["balance"]
    assert told["flows"]["left"] == pytest.approx(-0.75 * 0.2, **CLOSE)  # over a length of 0.75
    assert told["relative"] < 1e-3
    assert m.read(path, 1).balance().flows["left"] == pytest.approx(-0.75 * 0.1, **CLOSE)
    assert m.read(path, 0).balance().stored == 0.0


def test_people_see_it(mosaicdd, tmp_path):
    path = tmp_path / "heat.h5"
    domain, sides, fields = CASES["L"]
    problem = m.Problem(domain, "heat", fields | {"f": "x*t"}, sides)
    balance = m.march(problem, "x*y", **TIME, **TIGHT, output=path).balance()
    shown = mosaicdd("quantities", path)
    assert f"out through left: {balance.flows['left']:.6g}" in shown.out
    assert f"stored {balance.stored:.6g}" in shown.out
    assert json.loads(mosaicdd("quantities", path, "--json").out)["balance"] == balance.described()
    assert mosaicdd("report", path).code == 0
    assert f"stored {balance.stored:.4g}, left over" in path.with_suffix(".html").read_text()


def test_a_march_that_went_on_has_that_of_all_steps(tmp_path):
    domain, sides, fields = CASES["L"]
    problem = m.Problem(domain, "heat", fields | {"f": "x*t"}, sides)
    whole = m.march(problem, "x*y", **TIME, **TIGHT).balance()
    path = tmp_path / "heat.h5"
    interrupted(problem, "x*y", 0.5, path, **TIME, **TIGHT)
    output = m.Output(path, resume=True)
    resumed = m.march(problem, "x*y", **TIME, **TIGHT, output=output)
    assert resumed.balance() == whole
