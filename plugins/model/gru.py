"""Gated recurrent unit (Cho et al., 2014, arXiv:1406.1078).

    r, z = sigmoid(W x_t + U h_{t-1} + b)    one block of W, U, b for each gate
    n = tanh(W_n x_t + b_n + r * (U_n h_{t-1} + c_n))
    h_t = (1 - z) * n + z * h_{t-1}

Departs from the paper, as PyTorch does, in the bias c_n inside the reset product and in the sign of z: z = 1 keeps the
old state. There is no forget gate, and so no `forget_bias`.
"""

from typing import Annotated, Literal

from torch import nn

from nnexp import DataSpec, PerLane, Range, model
from nnexp.nn import Recurrent


@model
class GRU(Recurrent):
    """A recurrent layer with two gates: one mixes the old state with a candidate, one hides the old from the candidate.

    Args:
        data: what the dataset says of its tensors.
        hidden_size: units in h.
        num_layers: layers, each reading the states of the one below.
        bidirectional: read the sequence from both ends; refused where each position is to be predicted.
        bias: whether sums have biases, the output's among them.
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
        init: Literal["torch", "normal"] = "torch",
        init_scale: Annotated[float, Range(min=0), PerLane] = 1.0,
    ) -> None:
        options = {"batch_first": True, "bidirectional": bidirectional, "bias": bias}
        super().__init__(data, nn.GRU(data.channels, hidden_size, num_layers, **options), init, init_scale)
