"""A block: the rectangle of lattice nodes whose subdomains one rank owns, and its local arrays.

A block that owns the centres ``start..stop`` of an axis stores the region of all its subdomains:
the lattice lines ``start - 1 .. stop``, closed. Neighbouring regions share one lattice cell. In
this region every owned subdomain finds its perimeter, and every owned centre line its place.
Without ranks there is one block, the whole lattice.
"""

from dataclasses import dataclass

from mosaicdd.lattice.lattice import Lattice

Slices = tuple[slice, slice]
Piece = tuple[int, Slices]
"""A part of the interface: which family of lines (the axis they are constant in), which part."""


@dataclass(frozen=True)
class Block:
    """The subdomains centred at the lattice nodes ``start <= (i, j) < stop``, on axes (y, x)."""

    lattice: Lattice
    start: tuple[int, int]
    stop: tuple[int, int]

    @classmethod
    def whole(cls, lattice: Lattice) -> "Block":
        """Return the block of all subdomains."""
        return cls(lattice, (1, 1), lattice.cells)

    @property
    def subdomains(self) -> tuple[int, int]:
        """Owned subdomains per axis."""
        return tuple(b - a for a, b in zip(self.start, self.stop, strict=True))

    @property
    def cells(self) -> tuple[int, int]:
        """Grid cells of the stored region per axis."""
        return tuple((n + 1) * self.lattice.spacing for n in self.subdomains)

    @property
    def origin(self) -> tuple[int, int]:
        """Grid node at the lower-left corner of the stored region."""
        return tuple((a - 1) * self.lattice.spacing for a in self.start)

    def at_edge(self, axis: int) -> tuple[bool, bool]:
        """Say whether the region touches the domain's edge at the low and high end of an axis."""
        return self.start[axis] == 1, self.stop[axis] == self.lattice.cells[axis]

    def line_shape(self, axis: int) -> tuple[int, int]:
        """Shape of the lines constant in ``axis``: lattice lines, grid nodes along each."""
        return self.subdomains[axis] + 2, self.cells[1 - axis] + 1

    def boundary_pieces(self) -> list[Piece]:
        """List the parts of the interface on the edge of the domain, where the data are given."""
        everything, ends = slice(None), (slice(0, 1), slice(-1, None))
        pieces = []
        for axis in (0, 1):
            pieces += [
                (axis, (end, everything))
                for end, at in zip(ends, self.at_edge(axis), strict=True)
                if at
            ]
            pieces += [
                (axis, (everything, end))
                for end, at in zip(ends, self.at_edge(1 - axis), strict=True)
                if at
            ]
        return pieces

    def inner(self, axis: int) -> Slices:
        """Return the part of the lines constant in ``axis`` that is not on the domain's edge."""
        return tuple(
            slice(1 if low else None, -1 if high else None)
            for low, high in (self.at_edge(axis), self.at_edge(1 - axis))
        )

    def owned(self, axis: int) -> Slices:
        """Return the part of the lines constant in ``axis`` that this block alone owns.

        Along the lines, it is half-open: a lattice cell between two blocks belongs to the lower.
        """
        low, _ = self.at_edge(1 - axis)
        return slice(1, -1), slice(1 if low else self.lattice.spacing, -1)

    def owned_place(self, axis: int) -> Slices:
        """Return where the owned part of these lines belongs among the lines of the whole domain."""
        _, nodes = self.owned(axis)
        first, end = self.origin[1 - axis], self.cells[1 - axis]
        return slice(self.start[axis], self.stop[axis]), slice(first + nodes.start, first + end)

    def owned_nodes(self) -> tuple[Slices, Slices]:
        """Return which grid nodes this block alone owns, in the region and in the whole field."""
        local, whole = [], []
        for axis in (0, 1):
            low, high = self.at_edge(axis)
            first = 0 if low else self.lattice.spacing
            last = self.cells[axis] + (1 if high else 0)
            local.append(slice(first, last))
            whole.append(slice(self.origin[axis] + first, self.origin[axis] + last))
        return tuple(local), tuple(whole)
