"""Simple recurrent network (Elman, 1990, doi:10.1207/s15516709cog1402_1).

    h_t = f(W x_t + U h_{t-1} + b),  h_0 = 0

Departs from the paper in training by whole backpropagation through time, and in f = tanh where the paper has the
logistic function. As in PyTorch there are two biases, whose sum counts.
"""

from typing import Annotated, Literal

from torch import nn

from nnexp import DataSpec, PerLane, Range, model
from nnexp.nn import Recurrent


@model
class RNN(Recurrent):
    """A recurrent layer whose state is a bent weighted sum of the input and of the state before.

    Args:
        data: what the dataset says of its tensors.
        hidden_size: units in h.
        num_layers: layers, each reading the states of the one below.
        bidirectional: read the sequence from both ends; refused where each position is to be predicted.
        bias: whether sums have biases, the output's among them.
        nonlinearity: the f above.
        init: initial weights; torch is PyTorch's own draw, normal is N(0, 1/fan_in) with zero biases.
        init_scale: multiplies every weight matrix but the output's.
    """

    def __init__(
        self,
        data: DataSpec,
        *,
        hidden_size: Annotated[int, Range(min=1)] = 32,
        num_layers: Annotated[int, Range(min=1)] = 1,
        bidirectional: bool = False,
        bias: bool = True,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        init: Literal["torch", "normal"] = "torch",
        init_scale: Annotated[float, Range(min=0), PerLane] = 1.0,
    ) -> None:
        options = {"batch_first": True, "bidirectional": bidirectional, "bias": bias, "nonlinearity": nonlinearity}
        super().__init__(data, nn.RNN(data.channels, hidden_size, num_layers, **options), init, init_scale)
