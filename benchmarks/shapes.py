"""Shapes: iterations and seconds beside the square's, and SNI's three domains against finite elements.

One thread, float64,
``exact``. The first table has Poisson's equation with a random source, zero outlines or insulated ones (then
the sides of the rectangle have the value zero), to the default tolerance. The second has the square with the
same on all four sides: a value, an exchange of 1, nothing that flows, or periods (for these two the little that the
source does not balance is taken off); also a cell more than a multiple of 16, and up to 1024 in a random medium of
contrast 1000. The third has, on domains like those of SNI
(ICLR 2026): Laplace's equation, mixed conditions (a flux through the holes; without a hole, exchange
all round), Darcy's with a varying coefficient and a source, and ``-div((1 + u^2) grad u) = 10`` with a
flux through the holes; the reference are quadratic finite elements on triangles of about half a cell
(scikit-fem, which must be installed: ``pip install scikit-fem``), of the nonlinear equation for
Kirchhoff's transform ``u + u^3 / 3``, which is harmonic but for the source. Written to ``benchmarks/shapes.md``,
``benchmarks/sides.md`` and ``benchmarks/shapes_elements.md``.
"""

import itertools
import time
from collections.abc import Iterable

import numpy as np
from common import publish, table
from scipy.spatial import Delaunay

import mosaicdd as m

_TRIANGLES = 1 / 200  # length of their sides
_MEDIUM = "lognormal:seed=0,length=0.05,contrast=1000"
_LARGEST = 1024  # cells a side that it is solved on
_SIZE = 4.0  # of the squares of the first table, in units of domain length

SMALL = {"cells": [64], "sides": [256], "sni": 0}


def main(
    *,
    cells: list[int] = (256, 512, 1024),
    sides: list[int] = (256, 512, 1024, 2048),
    sni: int = 256,
) -> None:
    """Measure the tables, and write them; without ``sni`` (0) not the third."""
    m.solve(m.Problem(m.Domain.from_distance(_disk, (64, 64), _SIZE / 64), "poisson", {"f": 1.0}))
    publish("shapes", "Iterations on shapes", _iterations(cells))
    publish("sides", "Iterations with natural and periodic sides", _all_round(sides))
    if sni:
        publish("shapes_elements", "Shapes beside finite elements", _sni(sni))


def _disk(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.hypot(x - 2, y - 2) - 1.9


def _ring(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return abs(np.hypot(x - 2, y - 2) - 1.4) - 0.5


def _corner(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.minimum(x - 2.0, 2.0 - y)  # below and to the right there is nothing


def _holes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 0.3 - np.hypot(x % 1 - 0.5, y % 1 - 0.5)


def _maze(cells: int) -> np.ndarray:
    """Return corridors of 24 cells, one and a half squares of 16 wide, joined at alternate ends."""
    mask = np.ones((cells + 1, cells + 1), bool)
    for number, row in enumerate(range(24, cells - 20, 28)):
        mask[row : row + 4, slice(0, cells - 24) if number % 2 else slice(24, None)] = False
    return mask


def _iterations(cells: list[int]) -> str:
    rows = []
    for n in cells:
        fields = {"f": np.random.default_rng(0).standard_normal((n + 1, n + 1))}
        h = _SIZE / n
        domains = {
            "square": m.Domain((n, n), h),
            "L": m.Domain.from_distance(_corner, (n, n), h),
            "16 holes": m.Domain.from_distance(_holes, (n, n), h),
            "disk": m.Domain.from_distance(_disk, (n, n), h),
            "ring": m.Domain.from_distance(_ring, (n, n), h),
            "maze": m.Domain.from_mask(_maze(n), h),
        }
        for name, domain in domains.items():
            row = [f"{n} x {n}", name]
            for outline in (m.Dirichlet(), m.Neumann()):
                if isinstance(outline, m.Neumann) and name in ("square", "disk", "ring"):
                    row += ["", ""]  # there is no outline, or no value
                    continue
                sides = None if name == "square" else {"outline": outline}
                begun = time.perf_counter()
                solution = m.solve(m.Problem(domain, "poisson", fields, sides), "exact")
                row += [str(solution.iterations), f"{time.perf_counter() - begun:.2f}"]
            rows.append(row)
    header = ["cells", "domain", "iterations, zero", "seconds", "iterations, insulated", "seconds"]
    return table(header, rows)


def _all_round(cells: Iterable[int]) -> str:
    conditions = {
        "a value": m.Dirichlet(),
        "exchange": m.Robin(1.0),
        "insulated": m.Neumann(),
        "periodic": m.Periodic(),
    }
    rows = []
    for n, (name, sides) in itertools.product(cells, conditions.items()):
        row = [f"{n} x {n}", name]
        for count, medium in ((n, None), (n + 1, None), (n, _MEDIUM)):
            if medium and n > _LARGEST:
                row += ["", ""]
                continue
            fields: dict = {"f": np.random.default_rng(0).standard_normal((count + 1, count + 1))}
            if medium:
                fields["a"] = medium
            domain = m.Domain((count, count), _SIZE / n)
            begun = time.perf_counter()
            solution = m.solve(m.Problem(domain, "diffusion", fields, sides), "exact")
            row += [str(solution.iterations), f"{time.perf_counter() - begun:.2f}"]
        rows.append(row)
    counted = "iterations", "seconds"
    others = "one cell more", "seconds", "in a medium", "seconds"
    return table(["cells", "on all sides", *counted, *others], rows)


# Domains like SNI's, in the unit square: their levels, and their outlines, the outer one first.


def _joined(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    rectangle = np.maximum(abs(x - 0.65) - 0.3, abs(y - 0.5) - 0.15)
    return np.minimum(np.hypot(x - 0.35, y - 0.5) - 0.3, rectangle)


def _two_holes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    square = np.maximum(abs(x - 0.5), abs(y - 0.5)) - 0.45
    holes = [0.12 - np.hypot(x - 0.3, y - 0.35), 0.15 - np.hypot(x - 0.65, y - 0.65)]
    return np.maximum.reduce([square, *holes])


def _minus(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    hole = 0.1 * (1 - np.hypot((x - 0.55) / 0.2, (y - 0.45) / 0.1))
    return np.maximum(np.hypot(x - 0.5, y - 0.5) - 0.45, hole)


def _arc(
    centre: tuple[float, float], radii: tuple[float, float], size: float, ends: tuple = (0, 2)
) -> np.ndarray:
    """Return points on an ellipse between angles in multiples of pi, but for the last."""
    count = int((ends[1] - ends[0]) * np.pi * max(radii) / size)
    t = np.pi * np.linspace(*ends, count, endpoint=False)
    return np.stack([centre[0] + radii[0] * np.cos(t), centre[1] + radii[1] * np.sin(t)], axis=1)


def _lines(corners: list[tuple[float, float]], size: float) -> np.ndarray:
    """Return points on the lines between corners, but for the last."""
    parts = []
    for p, q in itertools.pairwise(np.array(corners)):
        t = np.linspace(0, 1, int(np.hypot(*(q - p)) / size), endpoint=False)[:, None]
        parts.append(p + t * (q - p))
    return np.concatenate(parts)


def _outlines(name: str, size: float) -> list[np.ndarray]:
    if name == "disk and rectangle":
        meet = 0.35 + np.sqrt(0.3**2 - 0.15**2)
        arc = _arc((0.35, 0.5), (0.3, 0.3), size, (1 / 6, 11 / 6))
        corners = [(meet, 0.35), (0.95, 0.35), (0.95, 0.65), (meet, 0.65)]
        return [np.concatenate([arc, _lines(corners, size)])]
    if name == "square, two holes":
        corners = [(0.05, 0.05), (0.95, 0.05), (0.95, 0.95), (0.05, 0.95), (0.05, 0.05)]
        holes = [_arc((0.3, 0.35), (0.12,) * 2, size), _arc((0.65, 0.65), (0.15,) * 2, size)]
        return [_lines(corners, size), *holes]
    return [_arc((0.5, 0.5), (0.45, 0.45), size), _arc((0.55, 0.45), (0.2, 0.1), size)]


_DOMAINS = {
    "disk and rectangle": _joined,
    "square, two holes": _two_holes,
    "disk minus an ellipse": _minus,
}


def _value(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.sin(3 * x) + np.cos(4 * y)


def _coefficient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 1 + 0.9 * np.sin(8 * x) * np.cos(7 * y)


def _flux(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 1 + x - y


_NONLINEAR = "1 + u^2"
_EQUATIONS: dict[str, tuple[str, dict]] = {
    "Laplace": ("laplace", {}),
    "mixed": ("laplace", {}),
    "Darcy": ("diffusion", {"a": _coefficient, "f": 10.0}),
    _NONLINEAR: ("quasilinear-diffusion", {"k": "1 + u**2", "f": 10.0}),
}


def _sni(cells: int) -> str:
    rows = []
    for name, level in _DOMAINS.items():
        for kind, (equation, fields) in _EQUATIONS.items():
            sides = {"outline": m.Dirichlet(_value)}
            if kind == "mixed" and name == "disk and rectangle":
                sides = {"outline": m.Robin(2.0, _value)}
            elif kind in ("mixed", _NONLINEAR):
                sides = {"outline": m.Neumann(_flux), "outer": m.Dirichlet(_value)}
            domain = m.Domain.from_distance(level, (cells, cells), 1 / cells)
            begun = time.perf_counter()
            solution = m.solve(m.Problem(domain, equation, fields, sides))
            seconds = time.perf_counter() - begun
            y, x = np.mgrid[: cells + 1, : cells + 1] / cells
            inside = level(x, y) < -0.3 * _TRIANGLES  # slivers beside the outline are left out
            truth = _by_elements(name, kind, np.stack([x[inside], y[inside]]), _TRIANGLES)
            difference = solution.field[inside] - truth
            error = np.linalg.norm(difference) / np.linalg.norm(truth)
            rows.append([name, kind, str(solution.iterations), f"{seconds:.2f}", f"{error:.1e}"])
    header = ["domain", "problem", "iterations", "seconds", "relative L2 error"]
    return f"{cells} x {cells} cells around each.\n\n" + table(header, rows)


def _by_elements(name: str, kind: str, points: np.ndarray, size: float) -> np.ndarray:
    """Solve with quadratic finite elements on triangles of a size; return values at points ``(2, q)``."""
    import skfem
    from skfem.helpers import dot, grad

    level, outlines = _DOMAINS[name], _outlines(name, size)
    y, x = np.mgrid[: int(1 / size) + 1, : int(1 / size) + 1] * size
    x = x + 0.5 * size * (np.arange(len(x))[:, None] % 2)  # nearly equilateral triangles
    inner = level(x, y) < -0.6 * size
    nodes = np.concatenate([*outlines, np.stack([x[inner], y[inner]], axis=1)])
    delaunay = Delaunay(nodes)
    triangles = delaunay.simplices
    a, b, c = nodes[triangles].transpose(1, 0, 2)
    area = abs((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]) / 2
    on_outline = sum(map(len, outlines))
    middle = (a + b + c) / 3
    # Triangles between points of the outline alone lie beside it, unless their middles are inside.
    kept = (level(*middle.T) < -1e-3 * size) & (area > 1e-3 * size**2)
    mesh = skfem.MeshTri(nodes.T, triangles[kept].T)
    basis = skfem.Basis(mesh, skfem.ElementTriP2())
    outer = mesh.facets[:, mesh.boundary_facets()]
    of_outer = (outer < len(outlines[0])).all(axis=0)
    if not (outer < on_outline).all():
        raise RuntimeError(f"the mesh of {name} does not keep to its outline")
    facets = {True: mesh.boundary_facets()[of_outer], False: mesh.boundary_facets()[~of_outer]}

    @skfem.BilinearForm
    def stiffness(u, v, w):
        return (_coefficient(*w.x) if kind == "Darcy" else 1.0) * dot(grad(u), grad(v))

    @skfem.LinearForm
    def source(v, w):
        return _EQUATIONS[kind][1].get("f", 0.0) * v

    matrix, b_ = stiffness.assemble(basis), source.assemble(basis)
    robin = kind == "mixed" and name == "disk and rectangle"
    mixed = kind == "mixed" or (kind == _NONLINEAR and len(outlines) > 1)
    if mixed:
        side = skfem.FacetBasis(mesh, skfem.ElementTriP2(), facets=facets[robin])
        if robin:
            matrix += skfem.BilinearForm(lambda u, v, w: 2.0 * u * v).assemble(side)
        side_value = _value if robin else _flux
        b_ += skfem.LinearForm(lambda v, w: side_value(*w.x) * v).assemble(side)
    if robin:
        u = skfem.solve(matrix, b_)
    else:
        known = facets[True] if mixed else mesh.boundary_facets()
        dofs = basis.get_dofs(known).flatten()
        values = np.zeros(basis.N)
        fixed = _value(*basis.doflocs[:, dofs])
        values[dofs] = fixed + fixed**3 / 3 if kind == _NONLINEAR else fixed
        u = skfem.solve(*skfem.condense(matrix, b_, x=values, D=dofs))
    number = np.cumsum(kept) - 1
    at = number[delaunay.find_simplex(points.T)]
    corners = mesh.p[:, mesh.t[:, at]]  # (2, 3, q)
    sides = (corners[:, 1:] - corners[:, :1]).transpose(2, 0, 1)
    weights = np.linalg.solve(sides, (points - corners[:, 0]).T[..., None])[..., 0].T
    first, second, third = np.stack([1 - weights.sum(axis=0), *weights])
    shapes = [
        *(w * (2 * w - 1) for w in (first, second, third)),
        *(4 * w * v for w, v in ((first, second), (second, third), (first, third))),
    ]
    values = sum(w * u[dofs] for w, dofs in zip(shapes, basis.element_dofs[:, at], strict=True))
    return 2 * np.sinh(np.arcsinh(1.5 * values) / 3) if kind == _NONLINEAR else values
