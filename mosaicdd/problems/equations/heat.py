"""Heat in a medium, or anything that diffuses and fades: in time only."""

from dataclasses import replace

from mosaicdd.problems.equations.diffusion import DIFFUSION

HEAT = replace(
    DIFFUSION,
    name="heat",
    text="du/dt - div(a grad u) + c u = f, a one field or diag(axx, ayy)",
    steady=DIFFUSION,
)
