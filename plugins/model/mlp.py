"""Multilayer perceptron (Rumelhart, Hinton & Williams, 1986, doi:10.1038/323533a0).

    h_0 = x,  h_k = f(W_k h_{k-1} + b_k),  y = V h_L + c

Departs from the paper in the linear output, because the loss takes logits, and in the choice of f.
"""

from itertools import pairwise
from typing import Annotated, Literal

from torch import Tensor, nn

from nnexp import DataSpec, PerLane, Range, model
from nnexp.data import as_vector, as_windows
from nnexp.nn import initialise

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU, "sigmoid": nn.Sigmoid, "identity": nn.Identity}


@model
class MLP(nn.Module):
    """Multilayer perceptron: fully connected layers, each followed by an activation function.

    Args:
        data: specification of the dataset's tensors.
        hidden_size: units in each hidden layer.
        num_layers: number of hidden layers; 0 is a linear model.
        context: positions read for each prediction, for data with a target at each position.
        activation: function after each hidden layer; identity makes the network linear.
        init: initial weights: PyTorch's defaults (torch), or N(0, 1/fan_in) with zero biases (normal).
        init_scale: factor on every initial weight matrix but the output layer's.
    """

    def __init__(
        self,
        data: DataSpec,
        *,
        hidden_size: Annotated[int, Range(min=1)] = 16,
        num_layers: Annotated[int, Range(min=0)] = 1,
        context: Annotated[int, Range(min=1)] = 8,
        activation: Literal["tanh", "relu", "gelu", "sigmoid", "identity"] = "tanh",
        init: Literal["torch", "normal"] = "torch",
        init_scale: Annotated[float, Range(min=0), PerLane] = 1.0,
    ) -> None:
        super().__init__()
        self.data, self.context = data, context
        sizes = [context * data.channels if data.per_step else data.features, *[hidden_size] * num_layers]
        self.hidden = nn.Sequential()
        for inputs, outputs in pairwise(sizes):
            self.hidden.extend([nn.Linear(inputs, outputs), ACTIVATIONS[activation]()])
        self.head = nn.Linear(sizes[-1], data.outputs)
        initialise(self, init, init_scale, head=self.head)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return outputs (B, outputs), or (B, T, outputs) where data.per_step, for inputs (B, *data.shape)."""
        if self.data.per_step:
            inputs = as_windows(x, self.data, self.context, lengths)
        else:
            inputs = as_vector(x, self.data, lengths)
        output: Tensor = self.head(self.hidden(inputs))
        return output
