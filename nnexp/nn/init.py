"""Initial weights of all models."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

Init = Literal["torch", "normal"]


@torch.no_grad()
def initialise(module: nn.Module, init: Init, init_scale: float, *, head: nn.Module) -> None:
    """Initialise the weights of a model in place, from torch's global generator.

        self.hidden, self.head = nn.Linear(data.features, 32), nn.Linear(32, data.outputs)
        initialise(self, init, init_scale, head=self.head)  # last in the constructor

    Args:
        module: the whole model, newly constructed, so that its weights are PyTorch's defaults.
        init: "torch" keeps PyTorch's defaults, biases included. "normal" draws weight matrices from N(0, 1/fan_in), so
            that a recurrent matrix (H, H) is N(0, 1/H) and scales states by about 1 per step, sets biases to zero, and
            leaves the gains of normalisation layers at 1.
        init_scale: factor of every weight matrix except the head's, for either `init`.
        head: the output layer.
    """
    in_head = {id(parameter) for parameter in head.parameters()}
    for name, parameter in module.named_parameters():
        is_matrix = parameter.ndim > 1
        if init == "normal" and is_matrix:
            parameter.normal_(0.0, parameter[0].numel() ** -0.5)
        elif init == "normal" and name.rpartition(".")[2].startswith("bias"):
            parameter.zero_()
        if is_matrix and id(parameter) not in in_head:
            parameter.mul_(init_scale)
