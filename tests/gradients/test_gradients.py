"""Gradients of functionals of a solution against central differences, in torch against its own checks, on ranks as on one."""

import numpy as np
import pytest
import torch
from central_differences import central_difference

import mosaicdd as m
from mosaicdd.gradients.in_strips import InStrips

NY, NX = 24, 40
TIGHT = m.SolveSettings(rtol=1e-12)
STEP = 1e-4  # of fields about 1


def at_nodes(seed, shape=(NY + 1, NX + 1), low=0.5):
    return np.random.default_rng(seed).uniform(low, 2.0, shape)


def mixed(alpha=2.0, left=1.0, right=0.5, part=1.0, bottom="x"):
    return {
        "left": m.Robin(alpha, left),
        "right[0:2]": m.Dirichlet(part),
        "right": m.Neumann(right),
        "bottom": m.Dirichlet(bottom),
        "top": m.Neumann(0.3),
    }


def board(fields=None, **sides):
    return m.Problem(m.Domain((NY, NX), 0.25), "diffusion", fields or FIELDS, mixed(**sides))


FIELDS = {"a": at_nodes(0), "c": at_nodes(1), "f": at_nodes(2)}
PER_CELL = {"a": at_nodes(3, (NY, NX)), "c": 0.5, "f": 2.0}
AXES = {"axx": at_nodes(4), "ayy": 3.0, "c": at_nodes(1)}
TENSORS = {"axx": at_nodes(6), "axy": at_nodes(7, low=-2.0) / 5, "ayy": at_nodes(8)}
IN_CELLS = {"axx": 2.0, "axy": at_nodes(7, (NY, NX)) / 5, "ayy": at_nodes(8), "c": 0.5}
W = np.random.default_rng(5).standard_normal((NY + 1, NX + 1))


def functional(problem):
    """Return the terms of a weighted sum of squares of the solution, and that."""
    solution = m.solve(problem, settings=TIGHT)
    return W * solution.field**2, solution


@pytest.mark.parametrize(
    ("fields", "pde"),
    [
        pytest.param(FIELDS, "diffusion", id="nodes"),
        pytest.param(PER_CELL, "diffusion", id="cells"),
        pytest.param(AXES, "diffusion", id="axes"),
        pytest.param(TENSORS, "diffusion", id="tensors"),
        pytest.param(IN_CELLS, "diffusion", id="tensors in cells"),
        pytest.param(PER_CELL, "bilinear-diffusion", id="bilinear elements"),
    ],
)
def test_by_fields_they_are_central_differences(fields, pde):
    def board(fields):
        return m.Problem(m.Domain((NY, NX), 0.25), pde, fields, mixed())

    _, solution = functional(board(fields))
    gradient = m.adjoint(solution, 2 * W * solution.field)
    for number, (name, values) in enumerate(fields.items()):
        assert gradient[name].shape == np.shape(values)
        along = at_nodes(10 + number, np.shape(values))

        def moved(s, name=name, values=values, along=along):
            return functional(board({**fields, name: values + s * along}))[0]

        assert (gradient[name] * along).sum() == central_difference(moved, STEP)


def test_by_sides_they_are_central_differences():
    _, solution = functional(board())
    gradient = m.adjoint(solution, 2 * W * solution.field)
    y, x = np.arange(NY + 1) * 0.25, np.arange(NX + 1) * 0.25
    named = {"left": 0 * y + 1.0, "right": 0 * y + 0.5, "part": 0 * y + 1.0, "bottom": x}
    for name, values in named.items():
        along = at_nodes(20, values.shape)

        def moved(s, name=name, values=values, along=along):
            return functional(board(**{name: values + s * along}))[0]

        by = gradient["right[0:2]" if name == "part" else name]
        assert (by * along).sum() == central_difference(moved, STEP)
    by_alpha = central_difference(lambda s: functional(board(alpha=2.0 + s))[0], STEP)
    assert gradient["left.alpha"] == by_alpha


def test_a_linear_map_and_its_adjoint_have_the_same_product():
    # What is given by f, values and fluxes is linear: <w, u> is the sum of all of their products.
    u = m.solve(board(), settings=TIGHT)
    by = m.adjoint(u, W)
    y, x = np.arange(NY + 1) * 0.25, np.arange(NX + 1) * 0.25
    data = {"f": FIELDS["f"], "left": 1.0 + 0 * y, "right": 0.5 + 0 * y, "bottom": x}
    data |= {"right[0:2]": 1.0 + 0 * y, "top": 0.3 + 0 * x}
    parts = [(by[name] * values).sum() for name, values in data.items()]
    total = sum(parts)
    assert abs(total - (W * u.field).sum()) < 1e-10 * sum(map(abs, parts))


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_ranks_have_their_parts_of_the_same_gradients(comm, by_one):
    shape = (97, 129)  # squares enough for six ranks
    fields = {"a": at_nodes(6, (96, 128)), "c": 0.5, "f": at_nodes(7, shape)}
    problem = m.Problem(m.Domain((96, 128), 0.25), "diffusion", fields, mixed())
    w = at_nodes(8, shape)
    expected = by_one(lambda: m.adjoint(m.solve(problem, settings=TIGHT), w))
    with m.Solver(problem, settings=TIGHT, ranks=comm) as solver:
        solution = solver()
        by = m.adjoint(solution, w[solution.place], solver=solver)
    for name, values in expected.items():
        mine = values[solution.place] if values.ndim == 2 else values
        np.testing.assert_allclose(by[name], mine, rtol=1e-7, atol=1e-9 * abs(values).max())


def small(**sides):
    sides = {"left": m.Robin(2.0), "right": m.Neumann(0.5), **sides}
    return m.Problem(m.Domain((8, 8), 0.25), "diffusion", {"c": 0.1}, sides)


def drawn(*shape):
    return torch.from_numpy(at_nodes(sum(shape), shape))


def test_a_batch_is_its_members(monkeypatch):
    solve = m.differentiable(small(), ("a", "f", "left", "left.alpha"), settings=TIGHT)
    shapes = {"a": (9, 9), "f": (3, 9, 9), "left": (3, 9), "left.alpha": (3,)}

    def tensors():
        return {name: drawn(*shape).requires_grad_() for name, shape in shapes.items()}

    together, apart, w = tensors(), tensors(), drawn(3, 9, 9)
    u = solve(**together)
    (w * u).sum().backward()
    members = [
        solve(**{name: value if name == "a" else value[k] for name, value in apart.items()})
        for k in range(3)
    ]
    (w * torch.stack(members)).sum().backward()
    torch.testing.assert_close(u, torch.stack(members))
    for name, value in together.items():
        torch.testing.assert_close(value.grad, apart[name].grad, rtol=1e-9, atol=1e-12)
    plans = []
    made = type(solve).close
    monkeypatch.setattr(type(solve), "close", lambda self: plans.append(self) or made(self))
    solve(a=together["a"], f=together["f"]).sum().backward()
    assert len(plans) == 1
    with pytest.raises(ValueError, match="f is a batch of 3, another tensor one of 2"):
        solve(f=together["f"], left=drawn(2, 9))


def test_what_has_not_converged_raises_and_backwards_too():
    hasty = m.SolveSettings(rtol=1e-13, max_iterations=1)
    rough = torch.from_numpy(np.exp(3 * np.random.default_rng(0).standard_normal((65, 65))))
    problem = m.Problem((64, 64), "diffusion", {"f": 1.0})
    with pytest.raises(RuntimeError, match="solution has not converged"):
        m.differentiable(problem, ("a",), settings=hasty)(a=rough)
    # Backwards a random functional needs iterations, where values that are all zero need none.
    nothing = m.Problem((64, 64), "diffusion", {"a": rough.numpy()})
    solve = m.differentiable(nothing, ("f",), settings=hasty)
    u = solve(f=torch.zeros((65, 65), dtype=torch.float64, requires_grad=True))
    with pytest.raises(RuntimeError, match="has not converged"):
        (u * drawn(65, 65)).sum().backward()


def test_of_what_is_linear_expansions_are_exact():
    solve = m.differentiable(small(), ("f", "a"), rtol=1e-14)  # what is left is rounding
    at, along = drawn(9, 9), drawn(9, 9)
    exact = (np.inf,) * 3
    for linear in (lambda f: solve(f=f).sum(), torch.sum):
        assert m.taylor_test(linear, at, along) == (exact, ())
        assert m.taylor_test(linear, at, along, hessian=True) == (exact, exact)
    rates = m.taylor_test(lambda f: solve(f=f).square().sum(), at, along, hessian=True)
    assert rates.first == pytest.approx((2, 2, 2), abs=1e-3)
    assert rates.second == exact
    # A gradient that lacks a thousandth is of first order only.
    lacking = m.taylor_test(
        lambda f: solve(f=f.detach() + 0.999 * (f - f.detach())).sum(), at, along
    )
    assert lacking.first == pytest.approx((1, 1, 1), abs=1e-3)


def test_by_the_reaction_of_screened_poisson_they_are_those_of_diffusion():
    for c in (3.0, at_nodes(1), at_nodes(3, (NY, NX))):
        by = []
        for pde in ("screened-poisson", "diffusion"):
            problem = m.Problem(m.Domain((NY, NX), 0.25), pde, {"c": c, "f": 1.0}, mixed())
            by.append(m.adjoint(m.solve(problem, settings=TIGHT), W)["c"])
        assert np.shape(by[0]) == np.shape(c)
        assert abs(by[0]).max() > 0
        np.testing.assert_array_equal(*by)


def test_what_is_not_known_is_said():
    with pytest.raises(ValueError, match="unknown derivative by 'b'"):
        m.differentiable(small(), ("b",))
    solve = m.differentiable(small(), ("a",))
    with pytest.raises(ValueError, match=r"shape \(3, 3\).*\(8, 8\) or \(9, 9\)"):
        solve(a=drawn(3, 3))
    with pytest.raises(ValueError, match="not one of wrt"):
        solve(f=drawn(9, 9))
    with pytest.raises(ValueError, match="a is on meta, solves that are differentiated on the CPU"):
        solve(a=torch.ones(9, 9, device="meta"))
    with pytest.raises(TypeError, match="a must be a tensor, got ndarray"):
        solve(a=np.ones((9, 9)))
    with pytest.raises(ValueError, match=r"a is of torch.complex128, the problem takes real"):
        solve(a=drawn(9, 9) + 0j)
    with pytest.raises(TypeError, match=r"by name, as solve\(a="):
        solve(drawn(9, 9))
    with pytest.raises(TypeError, match=r"sparse tensor: give a.to_dense"):
        solve(a=drawn(9, 9).to_sparse())
    for no_name in (3, None, (3,), b"a", ("a", None)):
        with pytest.raises(TypeError, match="wrt must be a name, or several"):
            m.differentiable(small(), no_name)
    with pytest.raises(TypeError, match="problem must be a Problem, got int"):
        m.differentiable(3, "a")
    with pytest.raises(TypeError, match="adjoint_rtol must be a number, got str"):
        m.differentiable(small(), "a", adjoint_rtol="x")
    with pytest.raises(TypeError, match="at must be a tensor"):
        m.taylor_test(torch.sum, np.ones(3), torch.ones(3))
    with pytest.raises(ValueError, match=r"one number, this one gives the shape \(3,\)"):
        m.taylor_test(lambda a: 2 * a, torch.ones(3), torch.ones(3))
    with pytest.raises(TypeError, match="solve must be what differentiable returns"):
        m.in_jax(3)
    with pytest.raises(ValueError, match="wrt names nothing"):
        m.differentiable(small(), ())
    insulated = m.Problem((8, 8), "poisson", {"f": "x - 1/16"}, m.Neumann(0.0))
    with pytest.raises(m.Unsupported, match="holds the level"):
        m.differentiable(insulated, ("f",))
    with pytest.raises(m.Unsupported, match="has no source"):
        m.differentiable(m.Problem((8, 8), "laplace"), ("left",))
    solution = m.solve(small())
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        m.adjoint(solution, np.zeros(3))
    with pytest.raises(TypeError, match="dJ_du must be numbers"):
        m.adjoint(solution, "x")
    with pytest.raises(TypeError, match="solution must be a Solution, got int"):
        m.adjoint(3, np.zeros(3))


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("name", ["a", "f"])
def test_no_gradient_is_of_data_that_changed_since(name, comm):
    values = np.ones((65, 65))
    problem = m.Problem((64, 64), "diffusion", {"f": 1.0, name: values})
    solution = m.solve(problem, ranks=comm)
    values[3, 3] = 2.0
    with pytest.raises(
        ValueError, match=f"the field {name} of the problem changed since.*solve it"
    ):
        m.adjoint(solution, np.ones(solution.local.shape))


@pytest.mark.filterwarnings("error")
def test_an_adjoint_reads_the_solution_where_it_is(monkeypatch):
    seen = []
    values = InStrips.require_values
    monkeypatch.setattr(
        InStrips, "require_values", lambda self, u: seen.append(u) or values(self, u)
    )
    a = np.linspace(1, 2, 256).reshape(16, 16)
    solution = m.solve(m.Problem((16, 16), "diffusion", {"a": a, "f": 1.0}))
    before = np.array(solution.field)
    m.adjoint(solution, np.ones((17, 17)))
    assert np.shares_memory(seen[0], solution.field)
    assert seen[0].flags.writeable  # so torch takes it without a warning
    np.testing.assert_array_equal(solution.field, before)
    assert not solution.field.flags.writeable


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize(
    "part", ["left[0.30:1.0]", f"left[{1 / 3}:{2 / 3}]", "left[0.12345678901234:]", "left[ :0.5]"]
)
def test_parts_of_sides_have_the_names_that_they_were_given_by(part, comm):
    def solved(value):
        sides = {part: m.Neumann(value), "left": m.Dirichlet("y")}
        problem = m.Problem(m.Domain((32, 32), 1 / 32), "diffusion", {"a": 1.5}, sides)
        return m.solve(problem, "exact", rtol=1e-12, ranks=comm)

    solution = solved(1.0)
    gradient = m.adjoint(solution, np.ones_like(solution.local))
    assert set(gradient) == {"a", "c", "f", part, "left", "right", "bottom", "top"}
    # The equation is linear: so is the sum of its solution by what flows in.
    difference = np.sum(solved(2.0).gather() - solution.gather())
    assert gradient[part].sum() == pytest.approx(difference, rel=1e-7)
