"""The options of ``train`` that are fields of its settings, with their defaults and help.

A field's option is its name with dashes; its type and choices are those of the settings.
"""

from collections.abc import Callable
from dataclasses import fields

import click

_TRAINING = {
    "epochs": (200, "Passes over the training samples."),
    "batch_size": (256, "Samples per step, of all ranks together."),
    "base_batch_size": (
        0,
        "Batch that --lr and --warmup are for: the rate grows with its square root, the warm-up "
        + "with the batch itself, as in the paper; 0 leaves both alone.",
    ),
    "labels": (True, "Learn from solutions, or from boundary data and the PDE loss alone."),
    "points": (0, "Data points per step, drawn among the nodes; 0 takes all."),
    "optimizer": ("soap", "Optimiser."),
    "lr": (3e-3, "Greatest learning rate."),
    "always_adapt": (False, "LAMB: scale updates layer by layer without weight decay, too."),
    "clip": (0.0, "Greatest global norm of the gradient (the paper: 1); 0 does not clip."),
    "warmup": (0.01, "Fraction of the training over which the learning rate rises."),
    "decay_exponent": (1.0, "Then it falls to zero as (1 - t) to this power."),
    "pde_weight": (0.0, "Weight of the PDE loss; 0 leaves it out."),
    "collocation": (32, "Collocation points per step."),
    "laplacian": ("taylor", "Derivatives through the layers, or by double backward (the paper)."),
    "residual": (
        "continuous",
        "PDE residual; or the stencil's on grid outputs; or its sum over all coarser grids, the best "
        + "one without labels.",
    ),
    "lifting_degree": (2, "Degree of the exact solutions that the lifting takes out."),
    "precision": ("float32", "Of the training; bf16 and tf32 multiply in fewer digits."),
    "max_seconds": (0.0, "End training, with its schedule, within these seconds; 0: no limit."),
    "validations": (40, "How often the validation errors are computed."),
    "seed": (0, "Seed of weights and sample order."),
}
_EXECUTION = {
    "micro_batch": (
        0,
        "Samples per forward pass of a rank; 0: all on a GPU, few on a processor (which is faster there).",
    ),
    "recompute": (
        False,
        "Compute hidden layers again in the backward pass instead of keeping them, to save memory.",
    ),
    "bucket_cap_mb": (25.0, "Size of the buckets in which gradients are reduced, in MB."),
    "sharding": (
        "none",
        "What ranks share out: nothing, the optimiser's state (zero1), weights and state (fsdp), "
        + "or both within groups of ranks (hybrid).",
    ),
    "replicas": (1, "Number of groups for --sharding hybrid."),
}


def settings_options(command: Callable) -> Callable:
    """Add an option for each field of `TrainingSettings` and of `ExecutionSettings`."""
    for name, (default, text) in reversed((_TRAINING | _EXECUTION).items()):
        command = _option(name, default, text)(command)
    return command


def collected_settings(ctx: click.Context):
    """Return the settings of both kinds that the options gave.

    Raises
    ------
    ValueError
        If a value is out of its range.
    """
    from mosaicdd.training.execution_settings import ExecutionSettings
    from mosaicdd.training.settings import TrainingSettings

    given = ctx.meta[__name__]
    return tuple(
        kind(**{field.name: given[field.name] for field in fields(kind)})
        for kind in (TrainingSettings, ExecutionSettings)
    )


def _option(name: str, default, text: str) -> Callable:
    """Build an option whose value waits in the context for `collected_settings`."""

    def keep(ctx: click.Context, param: click.Parameter, value) -> None:
        ctx.meta.setdefault(__name__, {})[name] = value

    flag = "--" + name.replace("_", "-")
    kind: dict = {"type": type(default)}
    if name in _CHOICES:
        kind = {"type": click.Choice(_CHOICES[name])}
    elif isinstance(default, bool):
        flag += "/--no-" + name.replace("_", "-")
        kind = {}
    return click.option(
        flag,
        default=default,
        show_default=True,
        help=text,
        expose_value=False,
        callback=keep,
        **kind,
    )


# As in the settings, which take a second to import: --help does without.
_CHOICES = {
    "optimizer": ["adamw", "lamb", "muon", "soap"],
    "laplacian": ["taylor", "autograd"],
    "residual": ["continuous", "discrete", "multilevel"],
    "precision": ["float32", "float64", "bf16", "tf32"],
    "sharding": ["none", "zero1", "fsdp", "hybrid"],
}
