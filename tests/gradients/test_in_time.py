"""Gradients of marches in time against central differences, and their fields against those of `march`."""

import numpy as np
import pytest
import torch
from central_differences import central_difference

import mosaicdd as m
from mosaicdd.gradients import in_time

NY, NX, DT, STEPS = 16, 20, 0.05, 10
NODES = NY + 1, NX + 1
TIGHT = m.SolveSettings(rtol=1e-13)
STEP = 1e-4


def drawn(shape, seed=0):
    return torch.from_numpy(
        np.array(np.random.default_rng((seed, *shape)).uniform(0.5, 2.0, shape))
    )


SIDES = {"left": m.Robin(2.0, 1.0), "bottom": m.Dirichlet("1 + sin(3*t)"), "right": m.Neumann(0.3)}
WRT = ("initial", "a", "c", "s", "f", "left", "left.alpha", "right", "bottom")
NAMED = {
    "initial": drawn(NODES),
    "a": drawn(NODES, 1),
    "c": drawn(NODES, 2),
    "s": drawn(NODES, 3),
    "f": drawn((STEPS + 1, *NODES), 4),
    "left": drawn((NY + 1,), 5),
    "left.alpha": drawn((), 6),
    "right": drawn((STEPS + 1, NY + 1), 7),
    "bottom": drawn((NX + 1,), 8),
}


def plate(fields=None, **sides):
    return m.Problem(m.Domain((NY, NX), 0.25), "heat", fields or {}, SIDES | sides)


def terms_of(fields):
    return torch.from_numpy(np.random.default_rng(9).standard_normal(fields.shape)) * fields**2


def weighted(fields):
    return terms_of(fields).sum()


@pytest.mark.parametrize("method", ["bdf2", "euler", "crank-nicolson"])
@pytest.mark.parametrize("case", ["rectangle", "ring"])
def test_fields_are_those_of_a_march(method, case):
    problem = plate({"a": "1 + x", "f": "x*t", "s": 2.0, "c": 0.1})
    if case == "ring":
        domain = m.Domain.from_distance("abs(hypot(x - 1, y - 0.7) - 0.4) - 0.2", (NY, NX), 0.1)
        sides = {"outer": m.Robin(1.0, 0.5), "hole1": m.Neumann(0.2)}
        problem = m.Problem(domain, "heat", {"a": "1 + x", "f": "x*t", "s": "1 + y"}, sides)
    time = {"dt": DT, "steps": 5, "method": method, "every": 2}
    march = m.differentiable(problem, "a", initial="x", settings=TIGHT, **time)
    series = m.march(problem, "x", settings=TIGHT, solver_share=0.0, **time)
    fields = np.stack([*series])
    np.testing.assert_allclose(march().numpy(), fields, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("method", ["bdf2", "crank-nicolson"])
def test_they_are_central_differences(method):
    march = m.differentiable(plate(), WRT, dt=DT, steps=STEPS, method=method, settings=TIGHT)
    tensors = {name: values.clone().requires_grad_() for name, values in NAMED.items()}
    weighted(march(**tensors)).backward()
    along = {name: drawn(tuple(values.shape), 20) for name, values in NAMED.items()}

    def moved(s):
        return terms_of(march(**{n: v + s * along[n] for n, v in NAMED.items()}))

    slopes = [float((tensors[name].grad * along[name]).sum()) for name in NAMED]
    assert all(slopes)
    assert sum(slopes) == central_difference(moved, STEP)


@pytest.mark.parametrize("case", ["rectangle", "ring", "box"])
def test_storage_and_reaction_per_cell(case):
    cells = (6, 5, 4) if case == "box" else (NY, NX)
    domain, sides = m.Domain(cells, 0.25), {"left": m.Robin(2.0, 1.0)}
    if case == "ring":
        domain = m.Domain.from_distance("abs(hypot(x - 1, y - 0.7) - 0.4) - 0.2", cells, 0.1)
        sides = {"outer": m.Robin(1.0, 0.5), "hole1": m.Neumann(0.2)}
    given = {name: drawn(cells, seed) for seed, name in enumerate("sc")}
    fields = {"a": "1 + x", "f": "x*t"} | {name: values.numpy() for name, values in given.items()}
    problem, time = m.Problem(domain, "heat", fields, sides), {"dt": DT, "steps": 3}
    march = m.differentiable(problem, ("s", "c"), initial="1 + x", settings=TIGHT, **time)
    series = m.march(problem, "1 + x", settings=TIGHT, solver_share=0.0, **time)
    for named in ({}, given):
        expected = np.stack([*series])
        np.testing.assert_allclose(march(**named).numpy(), expected, rtol=1e-9, atol=1e-11)
    tensors = {name: values.clone().requires_grad_() for name, values in given.items()}
    torch.nansum(terms_of(march(**tensors))).backward()
    along = {name: drawn(cells, 20 + seed) for seed, name in enumerate("sc")}

    def moved(step):
        return torch.nan_to_num(
            terms_of(march(**{n: v + step * along[n] for n, v in given.items()}))
        )

    slopes = [float((tensors[name].grad * along[name]).sum()) for name in given]
    assert all(slopes)
    assert sum(slopes) == central_difference(moved, STEP)


@pytest.mark.parametrize(
    ("method", "lacks"),
    [("bdf2", "f"), ("crank-nicolson", "c"), ("bdf2", "s"), ("euler", "initial")],
)
def test_values_that_are_given_inside_alone_go_on_beside_natural_outlines(method, lacks):
    domain = m.Domain.from_distance("abs(hypot(x - 1, y - 0.7) - 0.4) - 0.2", (NY, NX), 0.1)
    sides = {"outer": m.Robin(2.0, 1.0), "hole1": m.Neumann(0.2)}
    outside = np.isnan(m.solve(m.Problem(domain, "poisson", sides=sides)).field)
    given = {name: drawn(NODES, seed) for seed, name in enumerate(["f", "c", "s", "initial"])}
    given[lacks][torch.from_numpy(outside)] = torch.nan
    time = {"dt": DT, "steps": 2, "method": method}
    march = m.differentiable(
        m.Problem(domain, "heat", {"s": 2.0}, sides), given, settings=TIGHT, **time
    )
    tensors = {name: values.clone().requires_grad_() for name, values in given.items()}
    fields = march(**tensors)

    def moved(step):
        fields = {n: (values + step * along[n]).numpy() for n, values in given.items()}
        initial, problem = fields.pop("initial"), m.Problem(domain, "heat", fields, sides)
        return np.stack([*m.march(problem, initial, settings=TIGHT, solver_share=0.0, **time)])

    along = {name: drawn(NODES, 20 + seed) for seed, name in enumerate(given)}
    np.testing.assert_allclose(fields.detach(), moved(0.0), rtol=1e-9, atol=1e-11)
    torch.nansum(terms_of(fields)).backward()
    slopes = [float((tensors[name].grad * along[name]).sum()) for name in given]
    assert all(slopes)
    assert sum(slopes) == central_difference(
        lambda step: torch.nan_to_num(terms_of(torch.from_numpy(moved(step)))), STEP
    )


def test_what_is_given_and_the_fields_have_the_same_product():
    linear = [name for name in WRT if name not in ("a", "c", "s", "left.alpha")]
    problem = plate({"a": NAMED["a"], "s": NAMED["s"]}, top=m.Dirichlet(0.0))
    march = m.differentiable(problem, linear, dt=DT, steps=STEPS, settings=TIGHT)
    tensors = {name: NAMED[name].clone().requires_grad_() for name in linear}
    product = (march(**tensors) * drawn((STEPS + 1, *NODES), 30)).sum()
    product.backward()
    parts = [float((values.grad * values).detach().sum()) for values in tensors.values()]
    assert abs(sum(parts) - product.item()) < 1e-10 * sum(map(abs, parts))


def test_steps_that_are_not_kept_are_taken_anew(monkeypatch):
    def gradient():
        march = m.differentiable(plate(), ("initial", "a"), dt=DT, steps=5, settings=TIGHT)
        tensors = [NAMED[name].clone().requires_grad_() for name in ("initial", "a")]
        weighted(march(initial=tensors[0], a=tensors[1])).backward()
        return [tensor.grad for tensor in tensors]

    expected = gradient()
    field = 8 * NODES[0] * NODES[1]
    monkeypatch.setattr(in_time, "device_memory", lambda *_: 2 * 25 * field)
    for values, others in zip(gradient(), expected, strict=True):
        torch.testing.assert_close(values, others, rtol=1e-9, atol=1e-12)


def test_what_is_not_known_is_said():
    time = {"dt": DT, "steps": 10**14}
    with pytest.raises(ValueError, match=r"needs at least .* GiB .*fewer steps"):
        m.differentiable(plate(), "a", **time)
    time["steps"] = 3
    with pytest.raises(ValueError, match="need both dt and steps, got dt=None"):
        m.differentiable(plate(), "a")
    with pytest.raises(m.Unsupported, match="a coefficient depends on the time"):
        m.differentiable(plate({"a": "1 + t"}), "f", **time)
    with pytest.raises(ValueError, match="unknown derivative by 'b'"):
        m.differentiable(plate(), "b", **time)
    march = m.differentiable(plate(), ("initial", "f"), **time)
    with pytest.raises(ValueError, match=r"initial has the shape \(3,\)"):
        march(initial=torch.zeros(3))
    with pytest.raises(ValueError, match=r"takes \(\) or \(17, 21\)"):
        march(initial=torch.zeros(NY, NX))
    stored = m.differentiable(plate(), "s", **time)
    with pytest.raises(ValueError, match=r"takes \(\), \(17, 21\) or \(16, 20\)"):
        stored(s=torch.zeros(3))
    with pytest.raises(ValueError, match=r"f has the shape \(3, 17, 21\)"):
        march(f=torch.zeros(3, *NODES))
    few = m.SolveSettings(rtol=1e-13, max_iterations=1)
    hasty = m.differentiable(plate(), "a", settings=few, **time)
    with pytest.raises(RuntimeError, match="has not converged"):
        hasty(a=torch.exp(5 * NAMED["a"]))


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_ranks_have_the_same_gradients(comm, by_one):
    cells = 96, 128
    problem = m.Problem(m.Domain(cells, 0.1), "heat", {"f": "x"}, {"left": m.Robin(1.0, "y*t")})

    def gradient(ranks=None):
        wrt = ("initial", "a")
        march = m.differentiable(problem, wrt, dt=0.5, steps=3, settings=TIGHT, ranks=ranks)
        tensors = [drawn((97, 129), k).requires_grad_() for k in range(2)]
        weighted(march(initial=tensors[0], a=tensors[1])).backward()
        march.close()
        return [tensor.grad for tensor in tensors]

    for values, others in zip(gradient(comm), by_one(gradient), strict=True):
        torch.testing.assert_close(values, others, rtol=1e-7, atol=1e-9)
