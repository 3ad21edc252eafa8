"""Gated recurrent unit (Cho et al., 2014, arXiv:1406.1078).

    r, z = sigmoid(W x_t + U h_{t-1} + b)    one block of W, U, b for each gate
    n = tanh(W_n x_t + b_n + r * (U_n h_{t-1} + c_n))
    h_t = (1 - z) * n + z * h_{t-1}

Departs from the paper, as PyTorch does, in the bias c_n inside the reset product and in the sign of z: z = 1 keeps the
previous state. There is no forget gate, hence no `forget_bias`.
"""

from typing import Annotated, Literal

from torch import nn

from nnexp import DataSpec, PerLane, Range, model
from nnexp.nn import Recurrent


@model
class GRU(Recurrent):
    """Gated recurrent unit: the state is a gated mean of the previous state and a candidate.

    Args:
        data: specification of the dataset's tensors.
        hidden_size: units in the state h.
        num_layers: number of layers; each reads the states of the one below.
        bidirectional: also read the sequence backwards; refused for data with a target at each position.
        bias: add biases, in the output layer too.
        init: initial weights: PyTorch's defaults (torch), or N(0, 1/fan_in) with zero biases (normal).
        init_scale: factor on every initial weight matrix but the output layer's.
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
