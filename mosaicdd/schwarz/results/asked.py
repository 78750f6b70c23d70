"""The fields that ranks keep, with the nodes of others around, as quantities see them."""

from typing import Any

import numpy as np

from mosaicdd.lattice.axes import common
from mosaicdd.lattice.window import Window
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.replicas import Replicas
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.quantities.held_field import HeldField
from mosaicdd.problems.quantities.quantities import Ask, Quantities
from mosaicdd.schwarz.field_share import FieldShare
from mosaicdd.schwarz.results.kept import Kept
from mosaicdd.unsupported import Unsupported

_AROUND = 2  # nodes, of which one-sided differences at an outline need three


def asked_of(kept: Kept, problem: Problem, ask: Ask) -> Any:
    """Return what is asked of the quantities of solutions; all ranks together.

    `ValueError` if the problem's data are other ones than when it was solved. `Unsupported` if not all of the field is
    there.
    """
    grid = kept.lattice.grid
    if kept.window != Window.whole(grid):
        raise Unsupported(
            "quantities are of the whole field, and this solution has a window of it: solve without window"
        )
    with Ranks.of(kept.given_ranks) as ranks:
        kept.require_told(problem, ranks)
        local = ranks.agree(lambda: kept.local)
        groups = Replicas(ranks, kept.settings.replicas, kept.settings.dims)
        group = groups.ranks.fitted(kept.lattice.subdomains, kept.cuts)
        share = FieldShare(group, kept.lattice, _AROUND)
        # Beyond the grid there is something along periodic axes only.
        wide = common(
            share.wide,
            tuple(
                slice(-_AROUND, nodes + _AROUND) if around else slice(0, nodes)
                for nodes, around in zip(grid.nodes, kept.lattice.periodic, strict=True)
            ),
        )
        values = [share.at(wide, share.widened(own)) for own in local]
        members = kept.place[0]
        shape = (len(values), *(p.stop - p.start for p in wide))
        field = HeldField(
            grid,
            problem.some(range(members.start, members.stop)) if kept.problems > 1 else problem,
            kept.problems,
            members,
            share.own,
            wide,
            np.stack(values) if values else np.zeros(shape),
            ranks.sum,
            ranks.allgather,
        )
        return ask(Quantities(field))
