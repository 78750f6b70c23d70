"""Some steps of a training on whole media, as `bench_train_ranks.py --whole` runs them on one mesh of ranks.

Prints losses, solves, seconds of the steps, the largest memory of a rank and, on one rank, how far ten derivatives are from
differences; writes the gradient of the first step.
"""

import argparse
import json
import resource
import time

import numpy as np
import torch

from mosaicdd.cli.launch import world
from mosaicdd.schwarz.multigrid.flexible_gradients import FlexibleGradients
from mosaicdd.training.course import Course
from mosaicdd.training.rank_group import rank_group
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings
from mosaicdd.training.trainer import Trainer

_SOLVES = []
_WEIGHTS, _CHANGE = 10, 2e-3


def main() -> None:
    """Train on this mesh."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("gradient")
    parser.add_argument("--dims", nargs=2, type=int, default=(1, 1))
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--sharding", default="none")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--precision", default="float64")
    parser.add_argument("--filters", type=int, default=32)
    parser.add_argument("--differences", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    how = {"batch_size": asked.batch, "epochs": 100, "optimizer": "adamw", "lr": 1e-3}
    settings = TrainingSettings(**how, precision=asked.precision)
    mesh = {"dims": tuple(asked.dims), "replicas": asked.replicas, "sharding": asked.sharding}
    execution = ExecutionSettings(**mesh)
    _count()
    with rank_group(world(), "cpu", execution) as ranks:
        own = {"filters": asked.filters, "width": 2 * asked.filters}
        course = Course.of("conductances", own, asked.data, settings, execution, ranks)
        torch.manual_seed(0)
        lesson = course.taught(settings, ranks)
        _begin(lesson.network)
        trainer = Trainer(lesson, settings, time.perf_counter(), ranks, execution)
        _SOLVES.clear()
        losses, begun = [], time.perf_counter()
        for step in range(asked.steps):
            trainer.take_step(step / 100)
            losses.append(trainer._signals["data_loss"])
            if not step:
                slopes = [trainer.parallel.whole(p.grad) for p in lesson.network.parameters()]
        seconds = time.perf_counter() - begun
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        peaks, solves = ranks.gathered(peak), ranks.gathered(len(_SOLVES))
        if not ranks.is_root:
            return
        np.save(asked.gradient, np.concatenate([slope.ravel() for slope in slopes]))
        figures = {"losses": losses, "solves": max(solves), "seconds": seconds, "peak": max(peaks)}
        if asked.differences:
            figures["differences"] = _differences(lesson, trainer)
        print(json.dumps(figures))


def _begin(network: torch.nn.Module) -> None:
    """Let the network begin with corrections that are not zero."""
    for part in (network.edges, network.cells):
        torch.nn.init.normal_(part.rest[-1].weight, std=0.1)


def _count() -> None:
    """Count the solves of this rank."""
    solve = FlexibleGradients.__call__

    def counted(gradients: FlexibleGradients, *data: object) -> object:
        _SOLVES.append(1)
        return solve(gradients, *data)

    FlexibleGradients.__call__ = counted


def _differences(lesson: object, trainer: Trainer) -> float:
    """Return the largest relative difference of derivatives by ten weights from central differences."""
    (part, *_) = lesson.passes.draw(0, trainer.ranks, 1)
    weights = list(lesson.network.parameters())
    slopes = torch.autograd.grad(lesson.loss(part), weights)
    worst = 0.0
    for number in np.random.default_rng(0).integers(len(weights), size=_WEIGHTS):
        flat, slope = weights[number].data.view(-1), slopes[number].view(-1)
        place = int(slope.abs().argmax())
        before, rises = float(flat[place]), []
        for change in (_CHANGE, -_CHANGE, 2 * _CHANGE, -2 * _CHANGE):
            flat[place] = before + change
            with torch.no_grad():
                rises.append(float(lesson.loss(part)))
        flat[place] = before
        near, far = rises[0] - rises[1], rises[2] - rises[3]
        difference = (8 * near - far) / (12 * _CHANGE)
        worst = max(worst, abs(difference / float(slope[place]) - 1))
    return worst


if __name__ == "__main__":
    main()
