"""Lesson of a network of operators: the loss is the mean logarithm of the errors that it leaves in `operator_samples`."""

from dataclasses import asdict, dataclass

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.operator import (
    MOMENTS,
    OPERATOR,
    REACTION,
    ROUGHNESS,
    OperatorNetwork,
    OperatorSettings,
    roughness,
)
from mosaicdd.local_solvers.subdomain_graphs import CELLS
from mosaicdd.local_solvers.upscaling import RATIO
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.storage.samples import MediaDataset
from mosaicdd.training.operator_samples import (
    SMALLEST,
    OperatorSamples,
    conductances_of,
    samples_of,
    symmetries,
)
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.reports import Report
from mosaicdd.training.row_lesson import MediaLesson, RowPass, roughest, shares

_ROUGHEST = 1.0  # of media that are learned
_FLOOR = 1e-3  # relative error that is as good as none
_PART = 50  # media of a pass without gradients
_WITH_REACTION, _REACTIONS, _SPREAD = 1 / 3, (1e-3, 1.0), 0.5  # share of media, on the coarse grid


@dataclass(frozen=True)
class OwnMedia:
    """Media of one rank that are not too rough, and their reactions."""

    # logarithm, reaction: ``(B, 49, 49)``
    logarithm: torch.Tensor
    reaction: torch.Tensor
    rough: torch.Tensor  # ``(B,)``
    kind: np.ndarray  # ``(B,)``, names

    @classmethod
    def of(cls, whole: MediaDataset, rows: slice, roughest: float = _ROUGHEST) -> "OwnMedia":
        """Read some media, and the one behind them, of whose shape the last one's reaction may be."""
        logarithm = torch.from_numpy(whole.logarithm[rows])
        behind = rows.stop % len(whole)
        following = torch.from_numpy(whole.logarithm[behind : behind + 1])
        shapes = torch.cat([logarithm[1:], following])[: len(logarithm)]
        rough = roughness(*(k.log().float() for k in conductances_of(logarithm))).flatten()
        known = rough <= roughest
        reaction = _reactions(whole, rows, shapes)
        kind = np.array(whole.kind[rows])[known.numpy()]
        return cls(logarithm[known], reaction[known], rough[known], kind)

    def samples(self) -> OperatorSamples:
        """Solve in them."""
        every = zip(self.logarithm.split(_PART), self.reaction.split(_PART), strict=True)
        parts = [samples_of(*media) for media in every if len(media[0])]
        none = torch.zeros(1, *self.logarithm.shape[1:])
        return OperatorSamples.joined(parts or [samples_of(none, none)[torch.arange(0)]])


def _reactions(data: MediaDataset, rows: slice, shapes: torch.Tensor) -> torch.Tensor:
    """Draw reactions of some media: of most none, else of the shape of the next medium."""
    rng = np.random.default_rng(data.seed)
    shapes = shapes / shapes.std(dim=(1, 2), keepdim=True).clamp(min=SMALLEST)
    least, most = np.log(_REACTIONS)
    size = np.exp(rng.uniform(least, most, len(data)))
    size *= rng.random(len(data)) < _WITH_REACTION
    return (_SPREAD * shapes).exp() * torch.from_numpy(size[rows].astype("f4"))[:, None, None]


class OperatorLesson(MediaLesson):
    """Of `OperatorNetwork`: operators of subdomains."""

    name, settings_type = OPERATOR, OperatorSettings

    @classmethod
    def made(cls, how: OperatorSettings, dataset: MediaDataset) -> OperatorNetwork:
        """Return the network, which is for any media."""
        return OperatorNetwork(how)

    @classmethod
    def part(
        cls, dataset: MediaDataset, ranks: RankGroup
    ) -> tuple[MediaDataset, OwnMedia, OwnMedia]:
        """Read this rank's share of media to learn from, and of those that are held out."""
        learned, held_out = shares(dataset, ranks)
        return dataset, OwnMedia.of(dataset, learned), OwnMedia.of(dataset, held_out)

    @classmethod
    def few(cls, dataset: MediaDataset, count: int) -> tuple[MediaDataset, OwnMedia, OwnMedia]:
        """Read some media, however rough."""
        media = OwnMedia.of(dataset, slice(0, min(count, len(dataset))), np.inf)
        return dataset, media, media

    def take(self, rows: tuple[MediaDataset, OwnMedia, OwnMedia]) -> int:
        """Solve in the media."""
        self._whole, learned, held_out = rows
        self._samples, self._held_out = (
            media.samples().to(self.like) for media in (learned, held_out)
        )
        self._rough = self.ranks.joined(held_out.rough)
        self.kinds = np.concatenate(self.ranks.gathered(held_out.kind))
        self._plain = self.held_out_errors(None)
        return len(learned.rough)

    def begin(self) -> None:
        """Begin with the principal components of what is lacking, each sample of about the same weight."""
        none = torch.zeros(1, *self._whole.logarithm.shape[1:])
        samples, network, images = self._samples, self.network, symmetries()[0]
        network.uniform.copy_(samples_of(none, none).lacking[0])
        total = self.ranks.total
        traces = samples.traces.double()
        count, kinds = self.batches.samples, len(images)
        gram = total((traces @ traces.mT).sum(dim=0)) / count
        gram = torch.stack([gram[image][:, image] for image in images]).mean(dim=0)
        values, vectors = torch.linalg.eigh(gram)
        root = vectors * values.clamp(min=SMALLEST * float(values[-1])).sqrt() @ vectors.T
        sizes = total(
            torch.stack([samples.sizes.sum(), samples.loads[..., 0].square().sum()]).double()
        )
        source = (sizes[0] / sizes[1]).sqrt() * torch.eye(MOMENTS).to(root)
        weights = torch.block_diag(root, source)
        # Each sample in one of its images, by its number among those of all ranks.
        numbers = self.batches.first(self.ranks) + torch.arange(len(traces))
        turned = [
            samples[numbers % kinds == i].turned(i).lacking - network.uniform for i in range(kinds)
        ]
        lacking = (torch.cat(turned).double() @ weights).flatten(1)
        even = lacking / lacking.norm(dim=1, keepdim=True).clamp(min=SMALLEST).sqrt()
        spread, wanted = total(even.T @ even), network.settings.modes
        # By one rank: vectors have signs, and near values rotations, that machines choose.
        modes = self.ranks.of_root(lambda: torch.linalg.eigh(spread)[1].flip(1)[:, :wanted].cpu())
        modes = modes.to(lacking)
        network.amplitudes.copy_((total((lacking @ modes).square().sum(dim=0)) / count).sqrt())
        shaped = modes.T.unflatten(1, network.uniform.shape) @ torch.linalg.inv(weights)
        with torch.no_grad():
            network.modes.copy_(shaped)

    def tensors(self) -> list[torch.Tensor]:
        """Return the samples."""
        return list(self._samples.tensors)

    def loss(self, part: RowPass) -> torch.Tensor:
        """Return the mean logarithm of the errors in images of some media."""
        samples = self._samples[part.rows].turned(part.first_row % len(symmetries()[0]))
        data, sources = samples.errors(self._said(samples))
        return ((data + _FLOOR**2).log().mean() + (sources + _FLOOR**2).log().mean()) / 4

    def _said(self, samples: OperatorSamples) -> torch.Tensor:
        """Return the network's corrections of the lifting."""
        fields = {"x": samples.x, "y": samples.y, "c": samples.c}
        return self.network.correction(self.network.encode(fields)[:, 0, 0])

    @torch.no_grad()
    def held_out_errors(self, network: OperatorNetwork | None) -> torch.Tensor:
        """Return the logarithms of the errors, the larger of boundary data's and sources'."""
        errors = [self.like]
        for part in torch.arange(len(self._held_out.x)).split(_PART):
            samples = self._held_out[part]
            data, sources = samples.errors(None if network is None else self._said(samples))
            errors.append((torch.maximum(data, sources[:, 0]) + SMALLEST).log() / 2)
        return torch.cat(errors)

    def card(self, name: str, best: Report) -> ModelCard:
        """Write down what the network is, was trained on, and reaches."""
        errors = self.ranks.joined(self.held_out_errors(self.network))
        side = RATIO * CELLS
        rough = roughest(self._rough, errors)
        return ModelCard(
            pde=self._whole.pde,
            cells=side,
            size=Subdomain().spacing * side,
            network=name,
            settings=asdict(self.network.settings),
            lifting_degree=None,
            boundary_range=[-1.0, 1.0],
            ranges={ROUGHNESS: [0.0, rough], REACTION: [0.0, _REACTIONS[1]]},
            validation=self.validation(best, errors),
        )
