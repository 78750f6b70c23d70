"""Each kind of what one differentiates by, against differences, Taylor's expansion, its own transposed, and torch's checks.

On 9 x 9 nodes, between periodic sides on 25 x 9: whatever is wrong with a derivative is wrong there, too. That ranks have the
same is in the other files.
"""

import numpy as np
import pytest
import torch
from central_differences import central_difference

import mosaicdd as m

N = 8
NODES, CELLS = (N + 1, N + 1), (N, N)
TIGHT = m.SolveSettings(rtol=1e-13)
STEP = 1e-4  # of values about 1
STEPS = 10


def drawn(shape, seed=0):
    values = np.random.default_rng((seed, *shape)).uniform(0.5, 1.5, shape)
    return torch.from_numpy(np.array(values))


def an_l():
    mask = np.ones(CELLS, bool)
    mask[4:, 4:] = False
    return m.Domain.from_mask(mask, 0.25, per_cell=True)


SIDES = {"left": m.Robin(2.0, 1.0), "right": m.Dirichlet("1 + y"), "top": m.Neumann(0.3)}
MIXED = {"left": m.Robin(2.0, 1.0), "outline": m.Robin(1.5, 0.7), "bottom": m.Dirichlet("1 + x")}
AROUND = {"bottom": m.Periodic(), "top": m.Periodic()}
DOMAINS = {
    "rectangle": (m.Domain(CELLS, 0.25), SIDES),
    "L": (an_l(), MIXED),
    "periodic": (
        m.Domain((3 * N, N), 0.25),
        {"left": m.Robin(2.0, 1.0), "right": m.Neumann(0.3)} | AROUND,
    ),
}
BY = {
    "a": NODES,
    "a per cell": CELLS,
    "axx": NODES,
    "axy": CELLS,
    "c": NODES,
    "c per cell": CELLS,
    "bx": NODES,
    "f": NODES,
    "f per cell": CELLS,
    "left": (N + 1,),
    "left.alpha": (),
    "right": (N + 1,),
    "top": (N + 1,),
    "outline": (),
    "outline.alpha": (),
    "bottom": (N + 1,),
}
OF_DOMAINS = {
    "rectangle": [name for name in BY if not name.startswith(("outline", "bottom"))],
    "L": [
        "a",
        "a per cell",
        "c",
        "c per cell",
        "bx",
        "f",
        "f per cell",
        "left",
        "outline",
        "outline.alpha",
        "bottom",
    ],
    "periodic": [
        "a",
        "a per cell",
        "axx",
        "axy",
        "c",
        "c per cell",
        "bx",
        "f",
        "f per cell",
        "left",
        "left.alpha",
        "right",
    ],
}
EDGES = {"left": m.Dirichlet("y"), "top": m.Dirichlet("1 + x*x"), "bottom": m.Dirichlet("x")}
NONLINEAR = {
    "p-laplace": {"a": NODES, "f": NODES, "left": (N + 1,), "eps": (), "p": ()},
    "poisson-boltzmann": {
        "a": CELLS,
        "c": NODES,
        "c per cell": CELLS,
        "f": NODES,
        "left": (N + 1,),
    },
    "allen-cahn": {"c per cell": CELLS, "f per cell": CELLS},
}
IN_TIME = {
    "initial": NODES,
    "a": NODES,
    "a per cell": CELLS,
    "c": NODES,
    "s": NODES,
    "f": (STEPS + 1, *NODES),
    "f per cell": (STEPS + 1, *CELLS),
    "c per cell": CELLS,
    "left": (STEPS + 1, N + 1),
    "left.alpha": (),
    "right": (N + 1,),
    "top": (STEPS + 1, N + 1),
}


def linear(domain, name):
    place, sides = DOMAINS[domain]
    fields = {"bx": "3*y", "by": -2.0} if name == "bx" else {}
    fields |= {"axx": 1.0, "ayy": 2.0, "axy": 0.2} if name in ("axx", "axy") else {}
    pde = "advection-diffusion" if name == "bx" else "diffusion"
    return m.Problem(place, pde, {"f": 1.0, "c": 0.2} | fields, sides)


def nonlinear(pde):
    fields = {"a": 1.0} if pde == "poisson-boltzmann" else {"eps": 0.3}
    return m.Problem(m.Domain(CELLS, 0.25), pde, {"f": 1.0} | fields, EDGES)


def marching(name):
    sides = SIDES | {"right": m.Dirichlet("1 + sin(3*t)")} if name != "right" else SIDES
    problem = m.Problem(m.Domain(CELLS, 0.25), "heat", {"f": "x*t"}, sides)
    time = {"initial": "x", "dt": 0.05, "steps": STEPS}
    return m.differentiable(problem, name.split()[0], settings=TIGHT, **time)


def network(ny):
    """Return a network of a conductivity at nodes, and its weights."""
    layers = torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
    of_places = torch.nn.Sequential(*layers).double()
    names = dict(of_places.named_parameters())
    sizes = [values.numel() for values in names.values()]
    lines = [torch.linspace(0, 1, count + 1, dtype=torch.float64) for count in (ny, N)]
    y, x = torch.meshgrid(*lines, indexing="ij")

    def conductivity(weights):
        parts = zip(names.items(), weights.split(sizes), strict=True)
        shaped = {name: part.reshape(values.shape) for (name, values), part in parts}
        places = torch.stack([x, y], dim=-1)
        return torch.func.functional_call(of_places, shaped, (places,))[..., 0].exp()

    return conductivity, drawn((sum(sizes),))


def cases():
    for domain, names in OF_DOMAINS.items():
        for name in names:
            yield f"{domain}, {name}"
    yield from (f"{pde}, {name}" for pde, names in NONLINEAR.items() for name in names)
    yield from (f"march, {name}" for name in IN_TIME)
    yield from (f"network, {of}" for of in (*DOMAINS, "p-laplace", "march"))


# Which others have in other places.
_REST = {
    "rectangle": ["c per cell", "f per cell"],
    "L": ["a per cell", "c", "f", "left", "bottom", "c per cell"],
    "periodic": ["a", "axx", "c", "bx", "f", "left", "right", "f per cell"],
    "p-laplace": ["f", "left", "p"],
    "poisson-boltzmann": ["a", "f", "c per cell"],
    "allen-cahn": ["f per cell"],
    "march": ["a", "c", "s", "left", "left.alpha", "right", "top", "c per cell"],
    "network": ["L", "periodic"],
}
CASES = [
    pytest.param(case, marks=[pytest.mark.nightly] * (name in _REST.get(of, ())))
    for case in cases()
    for of, name in [case.split(", ")]
]


def function_of(case):
    """Return a solution as a function of one tensor, where, and along what."""
    of, name = case.split(", ")
    field = name.split()[0]
    if of == "network":
        conductivity, weights = network(3 * N if name == "periodic" else N)
        solve = solve_of(name, "a")
        return (lambda w: solve(a=conductivity(w))), weights, 0.3 * drawn(weights.shape, 1)
    solve = solve_of(of, name)
    shape = NONLINEAR.get(of, IN_TIME if of == "march" else BY)[name]
    if of == "periodic" and shape:
        shape = (shape[0] + 2 * N, *shape[1:])
    at = drawn(shape, 2)
    size = {"axy": 0.3, "p": 0.2, "eps": 0.2}.get(field, 1.0)
    at = size * at + (2.0 if field == "p" else 0.0)
    return (lambda values: solve(**{field: values})), at, size * drawn(shape, 3)


def solve_of(of, name):
    if of == "march":
        return marching(name)
    problem = nonlinear(of) if of in NONLINEAR else linear(of, name)
    return m.differentiable(problem, name.split()[0], settings=TIGHT)


@pytest.mark.parametrize("case", CASES)
def test_derivatives_are_right(case):
    solve, at, along = function_of(case)
    weights = drawn(solve(at).shape, 5)

    def terms(values):
        u = torch.nan_to_num(solve(values))
        return weights * (u**2 + u**4 / 10)

    def functional(values):
        return terms(values).sum()

    here = at.clone().requires_grad_()
    functional(here).backward()
    slope = (here.grad * along).sum().item()
    assert slope == central_difference(lambda s: terms(at + s * along), STEP)

    rates = m.taylor_test(functional, at, along, step=5e-3, halvings=2, hessian=True)
    assert min(rates.first) > 1.9
    assert min(rates.second) > 2.9

    # Of the linear map from changes to changes, and its transposed.
    u = torch.nan_to_num(solve(here))
    by_values = torch.zeros_like(u).requires_grad_()
    (back,) = torch.autograd.grad(u, here, by_values, create_graph=True)
    (ahead,) = torch.autograd.grad(back, by_values, along)
    (by,) = torch.autograd.grad(u, here, weights)
    assert (ahead * weights).sum().item() == pytest.approx((by * along).sum().item(), rel=1e-10)

    def few(values):
        return torch.nan_to_num(solve(values))[..., 1:-1:3, ::4]

    assert torch.autograd.gradcheck(few, here, atol=1e-6, rtol=1e-6, fast_mode=True)
    if not case.startswith("march"):  # of which the expansion above has them
        assert torch.autograd.gradgradcheck(few, here, atol=1e-5, rtol=1e-4, fast_mode=True)
