"""Initial weights, defined once for all models."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

Init = Literal["torch", "normal"]


@torch.no_grad()
def initialise(module: nn.Module, init: Init, init_scale: float, *, head: nn.Module) -> None:
    """Draw the weights of a module, in place.

    Args:
        module: the whole model, freshly made, so that its weights are PyTorch's own draw.
        init: "torch" keeps that draw, biases included. "normal" draws N(0, 1/fan_in), so that a recurrent matrix
            (hidden, hidden) is N(0, 1/hidden) and a factor per step is about 1, sets biases to zero, and leaves the
            gains of normalisation layers at 1.
        init_scale: multiplies every weight matrix but the head's, in both.
        head: the module that gives the outputs.
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
