"""Random problems in files: what `m.read` returns of a solution, and what ``--config`` makes of a description."""

import json
import os

import h5py
import numpy as np
import pytest
from drawn_problems import drawn

import mosaicdd as m

RTOL = 1e-11
LEFT = (
    1e-7  # of the largest value: what RTOL and rounding leave by a condition of some ten thousand
)


def seeds(first, daily=6, nightly=200):
    later = range(first + daily, first + nightly)
    marked = (pytest.param(seed, marks=pytest.mark.nightly) for seed in later)
    return [*range(first, first + daily), *marked]


def places_in(p, rng, count=20):
    """Draw points of the rectangle or the box, (x, y), some of them nodes."""
    cells = rng.uniform(0, 1, (count, len(p.cells))) * p.cells
    cells[::3] = np.rint(cells[::3])
    return (cells * p.steps)[:, ::-1]


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("seed", seeds(2000))
def test_a_file_holds_what_the_solution_in_memory_has(seed, comm, common_path, monkeypatch):
    p, rng = drawn(seed, large=comm.size > 1), np.random.default_rng(seed)
    one, two = common_path / "one" / "out.h5", common_path / "two" / "other.h5"
    if comm.rank == 0:
        one.parent.mkdir()
        two.parent.mkdir()
    comm.Barrier()
    memory = m.solve(p.problem, ranks=comm, rtol=RTOL)
    solution = m.solve(p.problem, ranks=comm, rtol=RTOL, output=one)
    memory.save(two)
    comm.Barrier()
    field, points = np.asarray(memory.gather()), places_in(p, rng)
    values, in_memory = np.asarray(memory.at(points)), memory.each()[0]
    np.testing.assert_array_equal(solution.gather(), field)
    np.testing.assert_array_equal(solution.at(points), values)
    for stored, solved in ((m.read(one), solution), (m.read(two), memory)):
        np.testing.assert_array_equal(stored.field, field)
        np.testing.assert_array_equal(stored.at(points), values)
        assert stored.status == solved.status
        for name, numbers in vars(solved.history).items():
            np.testing.assert_array_equal(stored.history[name], numbers)
        for name in ("iterations", "error_estimate", "discrete_residual", "local_solver", "grid"):
            assert stored.attributes[name] == solved.report[name]
        assert {*stored.fields} == {*in_memory.fields}
        for name, given in p.fields.items():
            np.testing.assert_array_equal(stored.fields[name], in_memory.fields[name])
            known = np.isfinite(stored.fields[name])
            np.testing.assert_array_equal(stored.fields[name], np.where(known, given, np.nan))
        for axis in range(len(p.cells)):
            np.testing.assert_array_equal(stored.coordinates(axis), memory.coordinates(axis))
    monkeypatch.chdir(two.parent)
    relative = os.path.join(os.pardir, "one", "out.h5")
    off = 1.0 + rng.random(field.shape)
    exact = (memory, one), ("other.h5", relative), (relative, memory), (m.read(two), m.read(one))
    for each, reference in exact:
        assert m.compare(each, reference).max_error == 0
    for each in (memory, solution, one, relative, m.read("other.h5")):
        found, errors = m.compare(each, np.nan_to_num(field) + off), off[np.isfinite(field)]
        assert found.max_error == pytest.approx(errors.max())
        assert found.mae == pytest.approx(errors.mean())
    again = np.asarray(m.solve(m.read(relative).problem, ranks=comm, rtol=RTOL).gather())
    np.testing.assert_allclose(again, field, rtol=0, atol=LEFT * np.nanmax(abs(field)))


EQUATIONS = {
    "diffusion": ("a", "c", "f"),
    "bilinear-diffusion": ("a", "c", "f"),
    "reaction-diffusion": ("a", "c", "f"),
    "screened-poisson": ("c", "f"),
    "poisson": ("f",),
}
FORMULA = "0.5 - 0.1*{x}*{y}"  # of a source


class Description:
    """A drawn problem as TOML, in coordinates with an origin; its arrays are files, which are named from ``shown``."""

    def __init__(self, p, rng, folder, shown):
        self.p, self.rng, self.folder, self.shown = p, rng, folder, shown
        scale = rng.choice([0.0, 1.0, 1e3, 4e5])
        self.origin = tuple((scale * rng.uniform(-1, 1, len(p.cells))).tolist())  # x first
        self.places = {n: f"({n} - ({at!r}))" for n, at in zip("xyz", self.origin, strict=False)}

    def number(self, value):
        return str(self.rng.choice([repr(value), json.dumps(repr(value))]))

    def file(self, name, values):
        if self.rng.random() < 0.4:
            with h5py.File(self.folder / "arrays.h5", "a") as file:
                file[name] = np.asarray(values)
            return f"{self.shown}/arrays.h5:/{name}"
        np.save(self.folder / f"{name}.npy", values)
        return f"{self.shown}/{name}.npy"

    def domain(self):
        """Return what is said of the domain, if anything; a disk becomes an ellipse."""
        p = self.p
        if p.kind in ("cells", "voxels", "nodes"):
            np.save(self.folder / "mask.npy", p.inside.astype(self.rng.choice([bool, np.uint8])))
            return {"domain": f"{self.shown}/mask.npy"}
        if p.kind == "disk":
            h, w = (n * step for n, step in zip(p.cells, p.steps, strict=True))
            form = f"hypot({{x}}/{w!r} - 0.5, {{y}}/{h!r} - 0.5) - {self.rng.uniform(0.3, 0.45)!r}"
            p.domain = m.Domain.from_distance(form.format(x="x", y="y"), p.cells, p.steps)
            return {"domain": "expr:" + form.format(**self.places)}
        if p.kind in ("polygon", "blocks"):
            ring = np.asarray(p.domain.shape.rings[0]) + self.origin
            (self.folder / "domain.json").write_text(json.dumps({"outer": ring.tolist()}))
            return {"domain": f"{self.shown}/domain.json"}
        return {}

    def condition(self, name, c):
        """Return a side, or a part of one, and what holds there."""
        spec, part = repr(c.g0), name
        if c.g1 and self.p.data[name] in ("expression", "function"):
            spec = f"expr:{c.g0!r} + {c.g1!r}*" + "{x}*{y}".format(**self.places)
        elif c.g1:
            spec = self.file(f"{name}{int(c.ends is None)}", self.p.given_condition(name, c).values)
        if c.ends is not None:
            part = name + "[{!r}:{!r}]".format(*(e + self.origin[name in ("left", "right")] for e in c.ends))  # fmt: skip
        ways = {"value": "dirichlet:", "flux": "neumann:", "exchange": f"robin:{c.alpha!r},"}
        return part, "periodic" if c.kind == "periodic" else ways[c.kind] + spec

    def text(self, pde, fields):
        p, times = self.p, lambda sizes: "x".join(map(str, sizes[::-1]))
        said = {"pde": pde, "cells": times(p.cells), "spacing": times(p.steps)} | self.domain()
        said |= {"origin": ",".join(map(repr, self.origin))} if any(self.origin) else {}
        lines = [f"rtol = {RTOL!r}", *(f"{name} = {json.dumps(v)}" for name, v in said.items())]
        sides = dict(p.sides)
        alike = [n for n, (c, *more) in sides.items() if c.kind == "value" and not (c.g1 or more)]
        if alike and self.rng.random() < 0.5:
            lines.append(f"boundary = {self.number(sides.pop(alike[0])[0].g0)}")
        lines.append("[field]")
        for name, v in fields.items():
            if isinstance(v, str):
                lines.append(f'{name} = "expr:{FORMULA.format(**self.places)}"')
            else:
                value = json.dumps(self.file(name, v)) if np.ndim(v) else self.number(v)
                lines.append(f"{name} = {value}")
        pairs = [self.condition(name, c) for name, each in sides.items() for c in each]
        lines += ["[side]", *(f"{json.dumps(part)} = {json.dumps(how)}" for part, how in pairs)]
        if p.held is not None:
            np.save(self.folder / "held.npy", p.held)
            lines += ["[hold]", f'"pole: {self.shown}/held.npy" = {self.number(0.5)}']
        return "\n".join(lines)


@pytest.mark.parametrize("seed", seeds(3000))
def test_a_description_is_the_problem_that_it_says(seed, mosaicdd, tmp_path, monkeypatch):
    p, rng = drawn(seed), np.random.default_rng(seed)
    one, two, data = (tmp_path / name for name in ("one", "two", "data"))
    for folder in (one, two, data):
        folder.mkdir()
    pde = str(rng.choice([*EQUATIONS]))
    p.fields = {name: v for name, v in p.fields.items() if name in EQUATIONS[pde]}
    if rng.random() < 0.3:
        p.fields["f"] = FORMULA.format(x="x", y="y")
        p.data.pop("f", None)
    shown = str(rng.choice(["../data", str(data)]))
    (data / "run.toml").write_text(Description(p, rng, data, shown).text(pde, p.fields))

    def made(folder, *words):
        monkeypatch.chdir(folder)
        ended = mosaicdd("solve", "-o", "out.h5", *words)
        return ended, None if ended.code == 2 else m.read("out.h5")

    ended, described = made(one, "--config", "../data/run.toml")
    problem = p.problem
    try:
        expected = m.solve(m.Problem(p.domain, pde, problem.fields, problem.sides), rtol=RTOL)
    except ValueError:
        expected = None
    if expected is None:  # what Python refuses, the command line refuses
        assert (ended.code, described) == (2, None)
        return
    assert (ended.code == 0) == expected.converged, ended.err
    field = np.asarray(expected.field)
    np.testing.assert_array_equal(np.isnan(described.field), np.isnan(field))
    np.testing.assert_allclose(described.field, field, rtol=0, atol=LEFT * np.nanmax(abs(field)))
    _, again = made(two, "--config", "../one/out.h5")
    np.testing.assert_array_equal(again.field, described.field)
    printed = mosaicdd("solve", "-o", "no.h5", "--config", "../one/out.h5", "--print-config")
    assert printed.code == 0, printed.err
    (data / "again.toml").write_text(printed.out)
    _, again = made(tmp_path, "--config", "data/again.toml")
    np.testing.assert_array_equal(again.field, described.field)
