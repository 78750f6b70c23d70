"""Media of high contrast, for tests and benchmarks: coefficients at the nodes ``(ny + 1, nx + 1)``, in space per voxel."""

from pathlib import Path

import numpy as np
import scipy.ndimage

TARBERT, NESS = (0, 35), (35, 85)
"""SPE10's layers: of a shore, lognormal, and of rivers, channels in shale."""


def smooth(nodes: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return a smooth lognormal field, correlated over some 12 cells, of contrast 300."""
    white = rng.standard_normal(nodes)
    return 300 ** _unit(scipy.ndimage.gaussian_filter(white, 12, mode="wrap"))


def noise(nodes: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return lognormal values, independent at every node, of contrast 2e6."""
    return 2e6 ** _unit(rng.standard_normal(nodes))


def checkerboard(nodes: tuple[int, int], rng: np.random.Generator | None = None) -> np.ndarray:
    """Return squares of 11 cells of 1 and 1e4: their edges lie anywhere in a lattice cell."""
    y, x = np.ogrid[: nodes[0], : nodes[1]]
    return np.where((y // 11 + x // 11) % 2, 1e4, 1.0)


def inclusions(nodes: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Return squares of 2 to 10 nodes of 1e6 in 1, anywhere."""
    a = np.ones(nodes)
    for _ in range(a.size // 500):
        y, x = rng.integers(0, nodes[0]), rng.integers(0, nodes[1])
        r = rng.integers(1, 6)
        a[max(y - r, 0) : y + r, max(x - r, 0) : x + r] = 1e6
    return a


def channels(nodes: tuple[int, int], rng: np.random.Generator, value: float = 1e6) -> np.ndarray:
    """Return winding channels of 2 to 4 nodes of a value in 1 along both axes, crossing each other."""
    a = np.ones(nodes)
    for _ in range(sum(nodes) // 32):
        across = a if rng.random() < 0.5 else a.T
        along = np.arange(across.shape[1])
        wave = rng.uniform(0, 20) * np.sin(2 * np.pi * along / rng.uniform(100, 300))
        centre = rng.integers(0, len(across)) + wave.astype(int)
        for offset in range(rng.integers(2, 5)):
            across[np.clip(centre + offset, 0, len(across) - 1), along] = value
    return a


MEDIA = {kind.__name__: kind for kind in (smooth, noise, checkerboard, inclusions, channels)}
"""The kinds by name."""


def constant(cells: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return 1."""
    return np.ones(cells)


def blocks(cells: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return cubes of 11 voxels of 1 and 1e4."""
    return np.where(sum(n // 11 for n in np.indices(cells)) % 2, 1e4, 1.0)


def _spheres(cells: tuple[int, ...], rng: np.random.Generator, value: float) -> np.ndarray:
    """Return balls of radii from 2.5 to 10 voxels that overlap, about a fifth of the volume, in 1."""
    a, left = np.ones(cells), 0.25 * np.prod(cells)
    while left > 0:
        radius, centre = rng.uniform(2.5, 10), rng.uniform(0, cells)
        box = tuple(slice(max(int(c - radius), 0), int(c + radius) + 2) for c in centre)
        part = a[box]
        places = [
            n + p.start + 0.5 - c
            for n, p, c in zip(np.indices(part.shape), box, centre, strict=True)
        ]
        part[sum(n * n for n in places) < radius**2] = value
        left -= 4 / 3 * np.pi * radius**3
    return a


def spheres(cells: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return balls of 1e6."""
    return _spheres(cells, rng, 1e6)


def hollows(cells: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return balls of 1e-6."""
    return _spheres(cells, rng, 1e-6)


def plates(cells: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return plates of two voxels, and bars along two axes, of 1e6, which one oblique slit cuts."""
    z, y, x = np.indices(cells)
    conducting = (z % 23 < 2) | ((y % 13 < 2) & (z % 17 < 3)) | ((x % 31 < 1) & (y % 19 < 2))
    return np.where(conducting & ((x + y + 2 * z) % 97 >= 2), 1e6, 1.0)


def wires(cells: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return straight wires of 1e6, one or two voxels thick, in all directions."""
    a, longest = np.ones(cells), 2 * max(cells)
    for _ in range(int(np.prod(cells) ** (2 / 3)) // 64):
        point, direction = rng.uniform(0, cells), rng.standard_normal(3)
        along = np.arange(-longest, longest, 0.25)[:, None]
        line = point + along * direction / np.linalg.norm(direction)
        thick = rng.integers(1, 3)
        for step in np.ndindex(thick, thick):
            voxels = np.floor(line + np.array([*step, step[0]])).astype(int)
            voxels = voxels[((voxels >= 0) & (voxels < cells)).all(axis=1)]
            a[tuple(voxels.T)] = 1e6
    return a


IN_SPACE = {
    kind.__name__: kind
    for kind in (constant, smooth, noise, blocks, spheres, hollows, plates, wires)
}
"""The kinds in space by name, per voxel."""


def rotating(nodes: tuple[int, int], peclet: float, spacing: float) -> dict[str, np.ndarray]:
    """Return a velocity ``bx``, ``by`` that turns about the middle of the domain.

    Parameters
    ----------
    peclet
        Velocity times spacing in the middle of the longer sides.
    """
    y, x = (np.arange(n) - (n - 1) / 2 for n in nodes)
    speed = peclet / spacing / max(x.max(), y.max())
    return {
        "bx": np.broadcast_to(-speed * y[:, None], nodes),
        "by": np.broadcast_to(speed * x, nodes),
    }


FLOWS = {
    "along x": lambda y, x: (1.0, 0.0),
    "along y": lambda y, x: (0.0, 1.0),
    "diagonal": lambda y, x: (1.0, 0.5),
    "shear": lambda y, x: (2 * y - 1, 0.0),
    "rotating": lambda y, x: (1 - 2 * y, 2 * x - 1),
    "recirculating": lambda y, x: _round(np.pi * y, np.pi * x),
    "4 x 4 cells": lambda y, x: _round(4 * np.pi * y, 4 * np.pi * x),
}
"""Velocities ``(bx, by)``, 1 at most along an axis, of places in the unit square."""


def _round(y: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a velocity around closed streamlines in squares of the width of pi."""
    return np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y)


def flow(kind: str, nodes: tuple[int, int], peclet: float, spacing: float) -> dict[str, np.ndarray]:
    """Return the velocity ``bx``, ``by`` of a kind, with its largest cell Peclet number in a medium of 1."""
    y, x = (np.linspace(0, 1, n) for n in nodes)
    ways = FLOWS[kind](y[:, None], x)
    speeds = (peclet / spacing * np.broadcast_to(way, nodes) for way in ways)
    return dict(zip(("bx", "by"), speeds, strict=True))


def spe10(nodes: tuple[int, int], path: Path, formation: tuple[int, int] = (0, 85)) -> np.ndarray:
    """Return layers of SPE10's second model side by side, repeated mirrored to fill the domain.

    Parameters
    ----------
    path
        An ``.npz`` file with the permeabilities ``kx``, ``(layers, rows, columns)``, and what each ``layer``
        is called.
    formation
        The first layer and the one after the last, as `TARBERT` or `NESS`; those of them that are in the
        file. All if not given.
    """
    with np.load(path) as file:
        chosen = (file["layer"] >= formation[0]) & (file["layer"] < formation[1])
        layers = file["kx"][chosen].astype(float)
    across = min(
        len(layers), max(1, round(np.sqrt(len(layers) * layers.shape[1] / layers.shape[2])))
    )
    rows = [layers[i : i + across] for i in range(0, len(layers) - across + 1, across)]
    mosaic = np.concatenate([np.concatenate(list(row), axis=1) for row in rows], axis=0)
    pad = [(0, max(0, n - size)) for n, size in zip(nodes, mosaic.shape, strict=True)]
    return np.pad(mosaic, pad, mode="symmetric")[: nodes[0], : nodes[1]].copy()


def _unit(values: np.ndarray) -> np.ndarray:
    return (values - values.min()) / np.ptp(values)
