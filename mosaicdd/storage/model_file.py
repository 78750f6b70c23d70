"""Model files: the weights of a network as plain arrays, and a card that says what they are.

Nothing in a model file is executed: the card is JSON, and the code of the network is this
package's own, looked up by its name when the weights are put in (`schwarz.local_solvers.loading`).
"""

import json
import os
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import h5py
import numpy as np

from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.storage.atomic import digest_of_seal
from mosaicdd.storage.hdf5 import library_versions, new_file, open_to_read

# What values may be, where the type of an entry is no class.
_KINDS: dict[Any, Any] = {float: (int, float), list[float]: list}


@dataclass(frozen=True)
class ModelCard:
    """The card of a model: its equation, its network, its training and its measured errors.

    Parameters
    ----------
    pde, cells, size, axes
        Equation, cells per side, side (domain length) and axes of the subdomain: 2 of a square, 3 of a cube.
    network, settings
        Name of the network and its settings.
    lifting_degree
        Polynomial degree of the exact solutions that are lifted; None without a lifting.
    boundary_range
        Least and greatest boundary value in training.
    hyperparameter_ranges
        Least and greatest value of each hyperparameter of the training data.
    spectrum
        Limits to the roughness of the training perimeters, as `spectrum_range`; empty if unknown.
    parameters
        Values of the equation's parameters, by name; those not named have their defaults.
    ranges
        Of a model for a family of operators: least and greatest value of what it is limited by, by
        name (`networks.registry.invariants`). Empty if the model is for one operator.
    validation
        Measured errors, by name.
    training
        How it was trained: the settings, steps and seconds.
    dataset_hash
        `Dataset.content_hash` of the training data.
    versions
        Of the package and its libraries at training.
    """

    pde: str
    cells: int
    size: float
    network: str
    settings: dict
    lifting_degree: int | None
    boundary_range: list[float]
    axes: int = 2
    hyperparameter_ranges: dict = field(default_factory=dict)
    spectrum: dict = field(default_factory=dict)
    parameters: dict = field(default_factory=dict)
    ranges: dict = field(default_factory=dict)
    validation: dict = field(default_factory=dict)
    training: dict = field(default_factory=dict)
    dataset_hash: str = ""
    versions: dict = field(default_factory=library_versions)

    def __post_init__(self) -> None:
        for entry in fields(self):
            value, kinds = getattr(self, entry.name), _KINDS.get(entry.type, entry.type)
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise TypeError(f"the model card's {entry.name} is {value!r}, a {kinds} is needed")
        if self.cells > 2**12:
            raise ValueError(f"the model card asks for {self.cells} cells, at most {2**12} can be")
        if self.axes not in (2, 3):
            raise ValueError(f"the model card is of {self.axes} axes, 2 or 3 can be")

    @property
    def subdomain(self) -> Subdomain:
        """The square, or cube, that the model was trained on."""
        return Subdomain(self.cells, self.size, self.axes)


def write_model(path: str | os.PathLike, card: ModelCard, weights: dict[str, np.ndarray]) -> None:
    """Write a model file, whole or not at all."""
    with new_file(path, "model") as file:
        file.attrs["card"] = json.dumps(asdict(card), sort_keys=True)
        group = file.create_group("weights")
        for name, values in weights.items():
            group[name] = values


def model_digest(path: str | os.PathLike) -> str | None:
    """Return the checksum that a model file states, by which it is told from another of its name."""
    return digest_of_seal(path)


def read_model(path: str | os.PathLike) -> tuple[ModelCard, dict[str, np.ndarray]]:
    """Read a model file.

    Returns
    -------
    ModelCard, dict
        The card, and the weights by name.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is foreign, truncated or of a newer format, or its card or a weight is malformed.
    """
    with open_to_read(path, "model") as file:
        text = str(file.attrs["card"])
        group = file["weights"]
        if not all(isinstance(group[name], h5py.Dataset) for name in group):
            raise ValueError(f"{path}: the weights of a model must be plain arrays")
        weights = {name: group[name][()] for name in group}
    for name, values in weights.items():
        if not np.issubdtype(getattr(values, "dtype", type(values)), np.floating):
            raise ValueError(f"{path}: weight {name!r} is not an array of floating-point numbers")
        if not np.isfinite(values).all():
            raise ValueError(f"{path}: weight {name!r} holds NaN or infinity")
    try:
        content = json.loads(text)
        if not isinstance(content, dict):
            raise TypeError("the model card is not a JSON object")
        if unknown := sorted(set(content) - {entry.name for entry in fields(ModelCard)}):
            raise ValueError(f"the model card has unknown entries: {', '.join(unknown)}")
        card = ModelCard(**content)
        _ = card.subdomain  # raises for an impossible square
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error
    return card, weights
