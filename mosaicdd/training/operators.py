r"""Training of a network of operators on what subdomains are inside larger squares.

Each medium of a dataset is a square of 48 cells, the subdomain the 32 x 32 in its middle. Smooth boundary
data and sources of the square have solutions that pass through the subdomain as those of a large domain do.
At the coarse nodes, ``t`` around it and ``u`` inside, they say what its operator should be: ``G`` is that of
the least squares ``|u - G t|``, and for the sources ``F = u - G t``. What the lifting lacks of both is to be
learned. The loss is the mean logarithm of the relative errors that are left in all these solutions.

The square's symmetries take media and operators along, so each medium is eight.

Shape letters: ``B`` media, ``P`` coarse nodes around a subdomain, ``I`` inside, ``q`` problems.
"""

import math
import os
from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain, perimeter_nodes
from mosaicdd.local_solvers.networks.family import interior_images
from mosaicdd.local_solvers.networks.medium_channels import (
    SEEN,
    relative_reaction,
    roughness,
    scales,
)
from mosaicdd.local_solvers.networks.operator import (
    MOMENTS,
    OPERATOR,
    REACTION,
    ROUGHNESS,
    OperatorNetwork,
    OperatorSettings,
    polynomials,
    shared_moments,
)
from mosaicdd.local_solvers.networks.symmetry import SquareSymmetry
from mosaicdd.local_solvers.subdomain_graphs import AROUND, CELLS, SubdomainGraphs
from mosaicdd.local_solvers.upscaling import MARGIN, RATIO, averaged
from mosaicdd.problems.conductances import Conductances
from mosaicdd.storage.media_file import MediaDataset, read_media
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.training.row_elimination import solve_squares
from mosaicdd.training.serial import Lesson, SerialReport

_ROUGHEST = 1.0  # of media that are learned
_OUTER = RATIO * SEEN  # fine cells around the subdomain
_WAVES, _DECAY = 24, 1.5  # of boundary data, and how they fall
_FLOOR = 1e-3  # relative error that is as good as none
_RIDGE = 1e-8  # of the least squares
_PART = 50  # media of a pass
_WITH_REACTION, _REACTIONS, _SPREAD = 1 / 3, (1e-3, 1.0), 0.5  # share of media, on the coarse grid
_ACCURATE = 0.05  # error up to which held-out media of a roughness are within the model's range
_ALIKE = 20  # of the held-out media that are compared: a share of them, of about the same roughness
_SMALLEST = 1e-12


@dataclass(frozen=True)
class OperatorSamples:
    """What a network of operators sees of media, and what it is to say.

    Parameters
    ----------
    x, y, c
        Logarithms of the conductances and the reaction over them, as `OperatorNetwork.encode`.
    lacking
        ``(B, I, P + moments)``, what lifting and uniform mode lack.
    traces
        ``(B, P, q)``, of the solutions around the subdomain, less their means.
    sizes, loads
        ``(B,)``, squares of what these solutions are inside, less those means, and ``(B, I, moments)``, of
        sources.
    """

    x: torch.Tensor
    y: torch.Tensor
    c: torch.Tensor
    lacking: torch.Tensor
    traces: torch.Tensor
    sizes: torch.Tensor
    loads: torch.Tensor

    def __getitem__(self, which: torch.Tensor) -> "OperatorSamples":
        """Return some of them."""
        return OperatorSamples(*(one[which] for one in self._all))

    @classmethod
    def joined(cls, parts: "list[OperatorSamples]") -> "OperatorSamples":
        """Return all samples of some parts."""
        return cls(*(torch.cat(one) for one in zip(*(part._all for part in parts), strict=True)))

    @property
    def _all(self) -> tuple[torch.Tensor, ...]:
        return self.x, self.y, self.c, self.lacking, self.traces, self.sizes, self.loads

    def turned(self, element: int) -> "OperatorSamples":
        """Return their images under a symmetry of the square."""
        around, inside, moments = (one[element] for one in _symmetries())
        x, y = (_turned(one, element) for one in (self.x, self.y))
        if _swaps(element):
            x, y = y, x
        lacking, traces, loads = map(torch.empty_like, (self.lacking, self.traces, self.loads))
        lacking[:, inside[:, None], around] = self.lacking[..., :AROUND]
        lacking[:, inside, AROUND:] = self.lacking[..., AROUND:] @ moments
        traces[:, around] = self.traces
        loads[:, inside] = self.loads @ moments
        return OperatorSamples(x, y, _turned(self.c, element), lacking, traces, self.sizes, loads)

    def errors(self, correction: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return relative errors squared: of boundary data ``(B,)``, and of sources ``(B, moments)``."""
        left = self.lacking if correction is None else self.lacking - correction
        data = (left[..., :AROUND] @ self.traces).square().sum(dim=(1, 2)) / self.sizes
        sizes = self.loads.square().sum(dim=1).clamp(min=_SMALLEST)
        return data, left[..., AROUND:].square().sum(dim=1) / sizes


def samples_of(logarithm: torch.Tensor, reaction: torch.Tensor) -> OperatorSamples:
    """Solve in media, and return what their subdomains are.

    Parameters
    ----------
    logarithm
        Of the coefficient at the nodes of squares of 48 cells, ``(B, 49, 49)``.
    reaction
        There, on the coarse grid and over the mean conductance of the subdomain.
    """
    a = logarithm.double().exp()
    right = 2 / (1 / a[:, :, 1:] + 1 / a[:, :, :-1])
    up = 2 / (1 / a[:, 1:] + 1 / a[:, :-1])
    return samples_in(right, up, reaction)


def samples_in(right: torch.Tensor, up: torch.Tensor, reaction: torch.Tensor) -> OperatorSamples:
    """As `samples_of`, by the conductances of squares, ``(B, 49, 48)`` and ``(B, 48, 49)``."""
    scale = scales(right.log(), up.log()).exp()  # (B, 1, 1)
    right, up = right / scale, up / scale
    inner = slice(_OUTER, -_OUTER)
    c = reaction.double() / RATIO**2
    u = solve_squares(right, up, c, *_problems())[:, inner, inner]
    around, q = RATIO * torch.from_numpy(perimeter_nodes(CELLS)), u.shape[3] - MOMENTS
    t = u[:, around[:, 0], around[:, 1]]
    u = u[:, RATIO:-RATIO:RATIO, RATIO:-RATIO:RATIO].flatten(1, 2)
    mean = t.mean(dim=1, keepdim=True)
    graphs = _graphs(right, up, c)
    operator, constant = _least_squares(t[..., :q] - mean[..., :q], mean[..., :q], u[..., :q])
    loads = u[..., q:] - operator @ (t[..., q:] - mean[..., q:]) - constant * mean[..., q:]
    spread = torch.eye(AROUND, dtype=t.dtype) - 1 / AROUND
    lacking = torch.cat(
        [operator - graphs.operator() @ spread, loads - graphs.inverse @ shared_moments()], dim=2
    )
    x, y = right.log(), up.log()
    ratio = relative_reaction(right, up, c)
    traces, inside = (one[..., :q] - mean[..., :q] for one in (t, u))
    sizes = inside.square().sum(dim=(1, 2))
    return OperatorSamples(*(one.float() for one in (x, y, ratio, lacking, traces, sizes, loads)))


def _graphs(right: torch.Tensor, up: torch.Tensor, c: torch.Tensor) -> SubdomainGraphs:
    """Return the lifting of the subdomains in the middle of squares."""
    cut = slice(_OUTER - MARGIN, MARGIN - _OUTER)
    made = [
        averaged(Conductances(*(one[cut, cut].numpy() for one in (u, r, f))))
        for r, u, f in zip(right, up, c, strict=True)
    ]
    parts = (
        torch.from_numpy(np.stack([getattr(one, name) for one in made]))
        for name in ("right", "up", "reaction")
    )
    return SubdomainGraphs(*parts)


def _least_squares(
    t: torch.Tensor, mean: torch.Tensor, u: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the operators ``(B, I, P)`` from what is around to what is inside, ``u (B, I, q)``.

    That is ``t (B, P, q)``, and its mean ``(B, 1, q)``, which has been taken out; what is inside for a mean of 1
    is returned besides, ``(B, I, 1)``.
    """
    t = torch.cat([t, mean], dim=1)
    gram = t @ t.mT
    scale = gram.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None]
    ridge = _RIDGE * torch.eye(AROUND + 1, dtype=t.dtype)
    ridge[:AROUND, :AROUND] += 1 / AROUND  # no mean is left for the operator to see
    found = torch.linalg.solve(gram + scale * ridge, t @ u.mT).mT
    return found[..., :AROUND], found[..., AROUND:]


@lru_cache
def _problems() -> tuple[torch.Tensor, torch.Tensor]:
    """Return boundary data and sources of the square, ``(49, 49, problems)`` each."""
    cells = RATIO * CELLS + 2 * _OUTER
    nodes = perimeter_nodes(cells)
    angle = 2 * np.pi * np.arange(len(nodes)) / len(nodes)
    waves = [f(k * angle) / k**_DECAY for k in range(1, _WAVES + 1) for f in (np.cos, np.sin)]
    edge, f = (np.zeros((cells + 1, cells + 1, len(waves) + MOMENTS)) for _ in range(2))
    edge[*nodes.T, : len(waves)] = np.stack(waves, axis=1)
    t = (np.arange(cells + 1) - cells / 2) / (RATIO * CELLS / 2)
    f[..., len(waves) :] = np.moveaxis(polynomials(t), 0, -1)
    return torch.from_numpy(edge), torch.from_numpy(f)


@lru_cache
def _symmetries() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return where nodes around and inside go, and what becomes of moments ``(8, moments, moments)``."""
    square, shared = SquareSymmetry(AROUND), shared_moments()
    inside = interior_images(square, CELLS)
    moments = []
    for nodes in inside:
        image = torch.empty_like(shared)
        image[nodes] = shared
        moments.append(torch.linalg.inv(torch.linalg.lstsq(shared, image).solution))
    return square.images, inside, torch.stack(moments).float()


@lru_cache
def _matrices() -> list[list[list[int]]]:
    return SquareSymmetry(AROUND).matrices.long().tolist()


def _swaps(element: int) -> bool:
    """Say whether a symmetry exchanges the axes."""
    return _matrices()[element][0][0] == 0


def _turned(values: torch.Tensor, element: int) -> torch.Tensor:
    """Return the image of values ``(B, rows, columns)``."""
    matrix = _matrices()[element]
    values = values.mT if _swaps(element) else values
    return values.flip([axis for axis in (1, 2) if sum(matrix[axis - 1]) < 0])


def _reactions(data: MediaDataset) -> torch.Tensor:
    """Draw reactions: in most media none, else of the shape of the next medium."""
    rng = np.random.default_rng(data.seed)
    shape = torch.from_numpy(np.roll(data.logarithm, -1, axis=0))
    shape = shape / shape.std(dim=(1, 2), keepdim=True).clamp(min=_SMALLEST)
    least, most = np.log(_REACTIONS)
    size = np.exp(rng.uniform(least, most, len(shape)))
    size *= rng.random(len(shape)) < _WITH_REACTION
    return (_SPREAD * shape).exp() * torch.from_numpy(size.astype("f4"))[:, None, None]


class OperatorLesson(Lesson):
    """Operators of subdomains; errors are geometric means of relative ones in held-out media."""

    name, settings_type, plain = OPERATOR, OperatorSettings, "averaged"
    network: OperatorNetwork

    def __init__(self, data: MediaDataset, how: OperatorSettings):
        self._media, self._how = data, how
        logarithm, reaction = torch.from_numpy(data.logarithm), _reactions(data)
        every = torch.arange(len(data.kind)).split(_PART)
        samples = OperatorSamples.joined([samples_of(logarithm[i], reaction[i]) for i in every])
        rough = roughness(samples.x, samples.y).flatten()
        held = torch.arange(len(rough)) >= len(rough) - data.held_out
        known = rough <= _ROUGHEST
        self._samples, self._held_out = samples[known & ~held], samples[known & held]
        self._kinds = np.array(data.kind)[(known & held).numpy()]
        self._rough = rough[known & held]
        self.learned = len(self._samples.x)
        self._plain = self._errors(None)
        self.network = OperatorNetwork(how)
        none = torch.zeros(1, *data.logarithm.shape[1:])
        self.network.uniform.copy_(samples_of(none, none).lacking[0])
        self._set_modes()

    @classmethod
    def read(cls, data: str | os.PathLike | MediaDataset) -> MediaDataset:
        """Return a dataset of media."""
        return data if isinstance(data, MediaDataset) else read_media(data)

    def _set_modes(self) -> None:
        """Begin with the principal components of what is lacking, each sample of about the same weight."""
        samples, network, count = self._samples, self.network, len(_matrices())
        traces = samples.traces.double()
        images = _symmetries()[0]
        gram = (traces @ traces.mT).mean(dim=0)
        gram = torch.stack([gram[image][:, image] for image in images]).mean(dim=0)
        values, vectors = torch.linalg.eigh(gram)
        root = vectors * values.clamp(min=_SMALLEST * float(values[-1])).sqrt() @ vectors.T
        sources = (samples.sizes.mean() / samples.loads[..., 0].square().sum(dim=1).mean()).sqrt()
        weights = torch.block_diag(root, float(sources) * torch.eye(MOMENTS, dtype=root.dtype))
        every = torch.arange(self.learned)
        turned = [
            samples[every[i::count]].turned(i).lacking - network.uniform for i in range(count)
        ]
        lacking = (torch.cat(turned).double() @ weights).flatten(1)
        even = lacking / lacking.norm(dim=1, keepdim=True).clamp(min=_SMALLEST).sqrt()
        modes = torch.linalg.eigh(even.T @ even)[1].flip(1)[:, : network.settings.modes]
        network.amplitudes.copy_((lacking @ modes).square().mean(dim=0).sqrt())
        shaped = modes.T.unflatten(1, network.uniform.shape) @ torch.linalg.inv(weights)
        with torch.no_grad():
            network.modes.copy_(shaped)

    def loss(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return the mean logarithm of the errors in images of some media."""
        samples = self._samples[chosen].turned(int(chosen[0]) % len(_matrices()))
        data, sources = samples.errors(self._said(samples))
        return sum((one + _FLOOR**2).log().mean() for one in (data, sources)) / 4  # type: ignore[return-value]

    def _said(self, samples: OperatorSamples) -> torch.Tensor:
        """Return the network's corrections of the lifting."""
        fields = {"x": samples.x, "y": samples.y, "c": samples.c}
        return self.network.correction(self.network.encode(fields)[:, 0, 0])

    @torch.no_grad()
    def _errors(self, network: OperatorNetwork | None) -> torch.Tensor:
        """Return the logarithms of the errors in held-out media, the larger of boundary data's and sources'."""
        errors = []
        for part in torch.arange(len(self._rough)).split(_PART):
            samples = self._held_out[part]
            data, sources = samples.errors(None if network is None else self._said(samples))
            errors.append((torch.maximum(data, sources[:, 0]) + _SMALLEST).log() / 2)
        return torch.cat(errors)

    def errors(self) -> tuple[float, float]:
        """Return the geometric means of the errors of the network, and of plain averages."""
        return tuple(float(one.mean().exp()) for one in (self._errors(self.network), self._plain))  # type: ignore[return-value]

    def card(self, best: SerialReport, training: dict) -> ModelCard:
        """Write down what the network is, was trained on, and reaches."""
        media, errors = self._media, self._errors(self.network)
        validation = {"error": best.error, "averaged": best.plain}
        for name in sorted(set(self._kinds)):
            of_kind = torch.from_numpy(self._kinds == name)
            validation[f"{name}"] = float(errors[of_kind].mean().exp())
            validation[f"{name}, averaged"] = float(self._plain[of_kind].mean().exp())
        side = RATIO * CELLS
        ranges = {ROUGHNESS: [0.0, self._roughest(errors)], REACTION: [0.0, _REACTIONS[1]]}
        return ModelCard(
            pde=media.pde,
            cells=side,
            size=Subdomain().spacing * side,
            network=OPERATOR,
            settings=asdict(self._how),
            lifting_degree=None,
            boundary_range=[-1.0, 1.0],
            ranges=ranges,
            validation=validation,
            training=training,
            dataset_hash=media.content_hash,
        )

    def _roughest(self, errors: torch.Tensor) -> float:
        """Return how rough a subdomain may be: up to there, held-out ones of all roughnesses are accurate."""
        rough, order = self._rough.sort()
        bound = float(rough[0])
        for part, wrong in zip(rough.chunk(_ALIKE), errors[order].chunk(_ALIKE), strict=True):
            if wrong.mean() > math.log(_ACCURATE):
                break
            bound = float(part[-1])
        return float(f"{bound:.2g}")
