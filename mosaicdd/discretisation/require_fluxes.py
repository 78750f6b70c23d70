"""What goes with periodic sides that jump."""

from typing import TYPE_CHECKING

from mosaicdd.problems.sides.sides import Sides, jumps_of

if TYPE_CHECKING:
    from mosaicdd.discretisation.discretisation import Discretisation


def require_fluxes(sides: Sides, on: "Discretisation") -> None:
    """Check that with a jump nothing acts on values but what holds some inside, away from periodic sides.

    `ValueError` if something does.
    """
    jumps = jumps_of(sides)
    if on.floating or not any(jumps):
        return
    reacting = on.medium.reacting(on.grid)
    acting = reacting is None or len(reacting) > 0 or bool(on.exchange.any())
    for axis, jump in enumerate(jumps):
        on_seam = on.known[:, axis] % on.grid.shape[axis] == 0
        acting = acting or (jump != 0 and bool(on_seam.any()))
    for part in map(sides.outline, () if on.outline is None else on.outline.names):
        acting = acting or part is None or not part.condition.natural
    if acting:
        raise ValueError(
            "periodic sides with a jump go with sides and outlines where a flux is given, and without c: "
            "values, and what they act on, would have to jump, too"
        )
