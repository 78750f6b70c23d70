"""The coarse matrix ``A_c = P^T S P`` of the whole lattice, from what elements add to it."""

from collections.abc import Sequence

import numpy as np
import scipy.sparse
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.parallel.node_gather import gather_of_parts
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.condensed.coarse_numbering import Numbering, of_elements


def assembled(
    ranks: Ranks,
    blocks: Sequence[Block],
    products: torch.Tensor,
    operators: np.ndarray,
    numbering: Numbering,
    *,
    here: bool,
    symmetric: bool,
) -> scipy.sparse.csc_array | None:
    """Assemble ``A_c`` of the whole lattice from the products of all ranks' elements, if wanted here.

    Of a symmetric one what each front has with itself and those after it, see `CoarseFactors`.

    Parameters
    ----------
    products
        ``P^T S P`` of elements that differ, ``(.., 4 + 4 M, 4 + 4 M)``.
    operators
        Which of them each element of the region has, ``(rows, columns)``.
    """
    cells = blocks[0].lattice.cells
    parts = []
    for block in blocks:
        ends = zip((block.owned_cells(axis) for axis in (0, 1)), block.first, strict=True)
        parts.append(tuple(slice(part.start + a, part.stop + a) for part, a in ends))
    mine = blocks[ranks.rank]
    owned = operators[mine.owned_cells(0), mine.owned_cells(1)].ravel()
    own = torch.from_numpy(owned).to(products.device)
    # Row by row of all elements' matrices: together they would take more than all that is kept here.
    gather = gather_of_parts(ranks, cells, parts, problems=products.shape[2])
    rows = (gather(row[own].t().cpu(), np.empty(0))[0] for row in products.unbind(1))
    if not here:
        for _ in rows:
            pass
        return None
    order = numbering.order[of_elements(numbering.between((0, 0), cells))].astype(np.int32)
    fronts = np.append(numbering.fronts.astype(np.int32), -1)[order]  # -1 where there is no unknown
    triples = []
    for row, values in enumerate(rows):
        wanted = (fronts >= 0) & (fronts[:, row] >= 0)[:, None]
        if symmetric:
            wanted &= fronts <= fronts[:, row, None]
        which, columns = np.nonzero(wanted)
        triples.append((values.numpy()[columns, which], order[which, row], order[which, columns]))
    entries, *places_of = (np.concatenate(column) for column in zip(*triples, strict=True))
    del triples
    triplets = entries, tuple(places_of)
    return scipy.sparse.coo_array(triplets, shape=(len(numbering.unknowns),) * 2).tocsc()
