"""Long short-term memory (Hochreiter & Schmidhuber, 1997, doi:10.1162/neco.1997.9.8.1735), with the forget gate of
Gers, Schmidhuber & Cummins (2000, doi:10.1162/089976600300015015).

    i, f, o = sigmoid(W x_t + U h_{t-1} + b)    one block of W, U, b for each gate
    g = tanh(W_g x_t + U_g h_{t-1} + b_g)
    c_t = f * c_{t-1} + i * g,  h_t = o * tanh(c_t)

Departs from the papers in having no peepholes, and in training by full backpropagation through time. As in PyTorch,
gates are in the order (i, f, g, o) and each has two biases, which are added.
"""

from typing import Annotated, Literal

import torch
from torch import nn

from nnexp import DataSpec, PerLane, Range, model
from nnexp.nn import Recurrent


@model
class LSTM(Recurrent):
    """Long short-term memory: gates control what the cell state keeps, adds and outputs.

    Args:
        data: specification of the dataset's tensors.
        hidden_size: units in the state h and in the cell state c.
        num_layers: number of layers; each reads the states of the one below.
        bidirectional: also read the sequence backwards; refused for data with a target at each position.
        bias: add biases, in the output layer too; if false, forget_bias must be null.
        forget_bias: initial bias of the forget gate (the sum of both) in every layer and direction; null keeps the
            biases that `init` gives.
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
        forget_bias: Annotated[float | None, PerLane] = 1.0,
        init: Literal["torch", "normal"] = "torch",
        init_scale: Annotated[float, Range(min=0), PerLane] = 1.0,
    ) -> None:
        if forget_bias is not None and not bias:
            raise ValueError("model.forget_bias needs biases. Set model.forget_bias=null, or model.bias=true.")
        options = {"batch_first": True, "bidirectional": bidirectional, "bias": bias}
        super().__init__(data, nn.LSTM(data.channels, hidden_size, num_layers, **options), init, init_scale)
        if forget_bias is not None:
            self._set_forget_bias(forget_bias)

    @torch.no_grad()
    def _set_forget_bias(self, forget_bias: float) -> None:
        """Set the forget gate's input bias to the value and its recurrent bias to zero: PyTorch adds the two."""
        size = self.core.hidden_size
        for suffix in self.suffixes():
            self.core.get_parameter(f"bias_ih_{suffix}")[size : 2 * size] = forget_bias
            self.core.get_parameter(f"bias_hh_{suffix}")[size : 2 * size] = 0.0
