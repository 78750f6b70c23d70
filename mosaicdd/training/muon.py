"""Muon (Jordan 2024), which orthogonalises the update of a matrix, and what it leaves to AdamW."""

from collections.abc import Iterable

import torch


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon for the matrices, AdamW for all else: biases and convolutions.

    Muon's step is scaled to the size of AdamW's, so one learning rate serves both.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float):
        super().__init__(parameters, {"lr": lr})
        weights = [p for group in self.param_groups for p in group["params"]]
        matrices = [p for p in weights if p.ndim == 2]
        others = [p for p in weights if p.ndim != 2]
        self._parts: list[torch.optim.Optimizer] = []
        if matrices:
            self._parts.append(
                torch.optim.Muon(matrices, lr=lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
            )
        if others:
            self._parts.append(torch.optim.AdamW(others, lr=lr, weight_decay=0.0))

    @torch.no_grad()
    def step(self, closure=None) -> None:
        """Update all weights that have a gradient; a closure is not called."""
        for part in self._parts:
            part.param_groups[0]["lr"] = self.param_groups[0]["lr"]
            part.step()

    def state_dict(self) -> dict:
        """Return the state of both optimisers."""
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state_dict: dict) -> None:
        """Take up the state of both optimisers."""
        for part, state in zip(self._parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
