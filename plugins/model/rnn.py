"""Simple recurrent network (Elman, 1990, doi:10.1207/s15516709cog1402_1).

    h_t = f(W x_t + U h_{t-1} + b),  h_0 = 0

Departs from the paper in training by full backpropagation through time, and in f = tanh where the paper has the
logistic function. As in PyTorch there are two biases, which are added.
"""

from typing import Annotated, Literal

from torch import nn

from nnexp import DataSpec, PerLane, Range, model
from nnexp.nn import Recurrent


@model
class RNN(Recurrent):
    """Elman network: the state is a nonlinear function of the input and the previous state.

    Args:
        data: specification of the dataset's tensors.
        hidden_size: units in the state h.
        num_layers: number of layers; each reads the states of the one below.
        bidirectional: also read the sequence backwards; refused for data with a target at each position.
        bias: add biases, in the output layer too.
        nonlinearity: the function f of the equation.
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
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        init: Literal["torch", "normal"] = "torch",
        init_scale: Annotated[float, Range(min=0), PerLane] = 1.0,
    ) -> None:
        options = {"batch_first": True, "bidirectional": bidirectional, "bias": bias, "nonlinearity": nonlinearity}
        super().__init__(data, nn.RNN(data.channels, hidden_size, num_layers, **options), init, init_scale)
