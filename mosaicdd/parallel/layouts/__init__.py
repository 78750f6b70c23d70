"""How arrays lie over the ranks, as values, and the one way to move them from layout to layout.

`placements` split an array along one axis of the process mesh, a `layout` is a sequence of them,
a `redistribution` moves data between any two layouts; all else (scattering, gathering, writing,
transposing, repartitioning) is a call of it.
"""
