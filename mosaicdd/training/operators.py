"""Training of a network of operators: the loss is the mean logarithm of the errors that it leaves in `operator_samples`."""

import math
import os
from dataclasses import asdict

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.medium_channels import roughness
from mosaicdd.local_solvers.networks.operator import (
    MOMENTS,
    OPERATOR,
    REACTION,
    ROUGHNESS,
    OperatorNetwork,
    OperatorSettings,
)
from mosaicdd.local_solvers.subdomain_graphs import CELLS
from mosaicdd.local_solvers.upscaling import RATIO
from mosaicdd.storage.media_file import MediaDataset, read_media
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.training.operator_samples import SMALLEST, OperatorSamples, samples_of, symmetries
from mosaicdd.training.serial import Lesson, SerialReport

_ROUGHEST = 1.0  # of media that are learned
_FLOOR = 1e-3  # relative error that is as good as none
_PART = 50  # media of a pass
_WITH_REACTION, _REACTIONS, _SPREAD = 1 / 3, (1e-3, 1.0), 0.5  # share of media, on the coarse grid
_ACCURATE = 0.05  # error up to which held-out media of a roughness are within the model's range
_ALIKE = 20  # of the held-out media that are compared: a share of them, of about the same roughness


def _reactions(data: MediaDataset) -> torch.Tensor:
    """Draw reactions: in most media none, else of the shape of the next medium."""
    rng = np.random.default_rng(data.seed)
    shape = torch.from_numpy(np.roll(data.logarithm, -1, axis=0))
    shape = shape / shape.std(dim=(1, 2), keepdim=True).clamp(min=SMALLEST)
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
        samples, network, images = self._samples, self.network, symmetries()[0]
        traces = samples.traces.double()
        count = len(images)
        gram = (traces @ traces.mT).mean(dim=0)
        gram = torch.stack([gram[image][:, image] for image in images]).mean(dim=0)
        values, vectors = torch.linalg.eigh(gram)
        root = vectors * values.clamp(min=SMALLEST * float(values[-1])).sqrt() @ vectors.T
        sources = (samples.sizes.mean() / samples.loads[..., 0].square().sum(dim=1).mean()).sqrt()
        weights = torch.block_diag(root, float(sources) * torch.eye(MOMENTS, dtype=root.dtype))
        every = torch.arange(self.learned)
        turned = [
            samples[every[i::count]].turned(i).lacking - network.uniform for i in range(count)
        ]
        lacking = (torch.cat(turned).double() @ weights).flatten(1)
        even = lacking / lacking.norm(dim=1, keepdim=True).clamp(min=SMALLEST).sqrt()
        modes = torch.linalg.eigh(even.T @ even)[1].flip(1)[:, : network.settings.modes]
        network.amplitudes.copy_((lacking @ modes).square().mean(dim=0).sqrt())
        shaped = modes.T.unflatten(1, network.uniform.shape) @ torch.linalg.inv(weights)
        with torch.no_grad():
            network.modes.copy_(shaped)

    def loss(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return the mean logarithm of the errors in images of some media."""
        samples = self._samples[chosen].turned(int(chosen[0]) % len(symmetries()[0]))
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
            errors.append((torch.maximum(data, sources[:, 0]) + SMALLEST).log() / 2)
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
