"""Solve partial differential equations on large structured grids, with an error estimate.

```python
import mosaicdd as m

problem = m.Problem(m.Domain((1024, 1024)), "laplace", sides=m.Dirichlet("sin(x) + y"))
field = m.solve(problem).field
```

Names are imported at their first use: nothing here needs an MPI library, and the command line starts
fast. ``tests/test_imports.py`` has the order of the folders, each of which imports only those before it.
"""

import importlib as _importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mosaicdd.discretisation.discretisation import without_floating
    from mosaicdd.gradients.differentiable import adjoint, differentiable, taylor_test
    from mosaicdd.gradients.in_jax import in_jax
    from mosaicdd.homogenisation.effective import effective
    from mosaicdd.homogenisation.effective_conductivity import Effective
    from mosaicdd.parallel.ranks import Ranks
    from mosaicdd.problems.domain import Domain
    from mosaicdd.problems.equations.linear import Equation
    from mosaicdd.problems.equations.nonlinear import NonlinearEquation
    from mosaicdd.problems.operators.elliptic import EllipticOperator
    from mosaicdd.problems.operators.foils import Foil, Foils
    from mosaicdd.problems.problem import Problem
    from mosaicdd.problems.sides.conditions import Dirichlet, Neumann, Periodic, Robin
    from mosaicdd.problems.sides.held import Held
    from mosaicdd.report.comparison import compare
    from mosaicdd.report.stored import read
    from mosaicdd.solution.solution import Solution
    from mosaicdd.solution.solver import Solver, solve
    from mosaicdd.solvers.settings import Output, SolveSettings
    from mosaicdd.time.march import march
    from mosaicdd.time.series import Series
    from mosaicdd.training.generation import generate
    from mosaicdd.training.loop import train
    from mosaicdd.training.settings import ExecutionSettings, GenerationSettings, TrainingSettings
    from mosaicdd.unsupported import Unsupported

__version__ = "0.1.0"

_HOMES = {
    "Dirichlet": "problems.sides.conditions",
    "Domain": "problems.domain",
    "Effective": "homogenisation.effective_conductivity",
    "EllipticOperator": "problems.operators.elliptic",
    "Equation": "problems.equations.linear",
    "ExecutionSettings": "training",
    "Foil": "problems.operators.foils",
    "Foils": "problems.operators.foils",
    "GenerationSettings": "training",
    "Held": "problems.sides.held",
    "Neumann": "problems.sides.conditions",
    "NonlinearEquation": "problems.equations.nonlinear",
    "Output": "solvers.settings",
    "Periodic": "problems.sides.conditions",
    "Problem": "problems.problem",
    "Ranks": "parallel.ranks",
    "Robin": "problems.sides.conditions",
    "Series": "time.series",
    "Solution": "solution.solution",
    "SolveSettings": "solvers.settings",
    "Solver": "solution.solver",
    "TrainingSettings": "training",
    "Unsupported": "unsupported",
    "Wells": "problems.fields.wells",
    "adjoint": "gradients.differentiable",
    "compare": "report.comparison",
    "differentiable": "gradients.differentiable",
    "effective": "homogenisation.effective",
    "generate": "training",
    "in_jax": "gradients.in_jax",
    "march": "time.march",
    "read": "report.stored",
    "solve": "solution.solver",
    "taylor_test": "gradients.differentiable",
    "train": "training",
    "without_floating": "discretisation.discretisation",
}
_FORMER = {  # names that were, for those who look for them
    "MediaSettings": "media are solved without a network, by 'exact'",
    "SquareSettings": "nonlinear equations are solved by Newton's method, 'exact'",
    "open": "it is 'read' now",
}
__all__ = [
    "Dirichlet",
    "Domain",
    "Effective",
    "EllipticOperator",
    "Equation",
    "ExecutionSettings",
    "Foil",
    "Foils",
    "GenerationSettings",
    "Held",
    "Neumann",
    "NonlinearEquation",
    "Output",
    "Periodic",
    "Problem",
    "Ranks",
    "Robin",
    "Series",
    "Solution",
    "SolveSettings",
    "Solver",
    "TrainingSettings",
    "Unsupported",
    "Wells",
    "__version__",
    "adjoint",
    "compare",
    "differentiable",
    "effective",
    "generate",
    "in_jax",
    "march",
    "read",
    "solve",
    "taylor_test",
    "train",
    "without_floating",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        former = f"; {_FORMER[name]}" if name in _FORMER else ""
        raise AttributeError(f"module 'mosaicdd' has no attribute {name!r}{former}")
    value = getattr(_importlib.import_module(f"mosaicdd.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__"]
