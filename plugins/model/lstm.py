"""Long short-term memory (Hochreiter & Schmidhuber, 1997, doi:10.1162/neco.1997.9.8.1735), with the forget gate of
Gers, Schmidhuber & Cummins (2000, doi:10.1162/089976600300015015).

    i, f, o = sigmoid(W x_t + U h_{t-1} + b)    one block of W, U, b for each gate
    g = tanh(W_g x_t + U_g h_{t-1} + b_g)
    c_t = f * c_{t-1} + i * g,  h_t = o * tanh(c_t)

Departs from the papers in having no peepholes, and in training by whole backpropagation through time. As in PyTorch,
gates stand in the order (i, f, g, o) and each has two biases, whose sum counts.
"""

from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from nnexp import DataSpec, PerLane, Range, model
from nnexp.init import initialise
from nnexp.views import as_sequence, last_valid


@model
class LSTM(nn.Module):
    """A recurrent layer whose gates decide what its memory keeps, takes in and shows.

    Args:
        data: what the dataset says of its tensors.
        hidden_size: units in h and c.
        num_layers: layers, each reading the states of the one below.
        forget_bias: effective bias of the forget gate at the start, in every layer; null leaves PyTorch's own draw.
        init: initial weights; torch is PyTorch's own draw, normal is N(0, 1/fan_in) with zero biases.
        init_scale: multiplies every weight matrix but the output's.
    """

    fused = True  # False: an own loop over time, which torch.func.vmap can follow

    def __init__(
        self,
        data: DataSpec,
        *,
        hidden_size: Annotated[int, Range(min=1)] = 32,
        num_layers: Annotated[int, Range(min=1)] = 1,
        forget_bias: Annotated[float | None, PerLane] = 1.0,
        init: Literal["torch", "normal"] = "torch",
        init_scale: Annotated[float, Range(min=0), PerLane] = 1.0,
    ) -> None:
        super().__init__()
        self.data = data
        self.lstm = nn.LSTM(data.channels, hidden_size, num_layers, batch_first=True)
        self.head = nn.Linear(hidden_size, data.outputs)
        initialise(self, init, init_scale, head=self.head)
        if forget_bias is not None:
            self._set_forget_bias(forget_bias)

    @torch.no_grad()
    def _set_forget_bias(self, forget_bias: float) -> None:
        size = self.lstm.hidden_size
        for layer in range(self.lstm.num_layers):
            self.lstm.get_parameter(f"bias_ih_l{layer}")[size : 2 * size] = forget_bias
            self.lstm.get_parameter(f"bias_hh_l{layer}")[size : 2 * size] = 0.0

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, *data.shape) -> (B, outputs) after the last valid position, or (B, T, outputs) where data.per_step."""
        sequence = as_sequence(x, self.data)
        states = self.lstm(sequence)[0] if self.fused else self._loop(sequence)
        return self.head(states if self.data.per_step else last_valid(states, lengths))

    def _loop(self, states: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, hidden): the same as `self.lstm`, in operations that work under torch.func.vmap."""
        for layer in range(self.lstm.num_layers):
            w_ih, w_hh, b_ih, b_hh = (
                getattr(self.lstm, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            inputs = linear(states, w_ih, b_ih + b_hh)
            h = c = inputs.new_zeros(inputs.shape[0], self.lstm.hidden_size)
            outputs = []
            for at_t in inputs.unbind(1):
                i, f, g, o = (at_t + linear(h, w_hh)).chunk(4, dim=-1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
                outputs.append(h)
            states = torch.stack(outputs, dim=1)
        return states
