"""A linear model: logistic regression (Cox, 1958, doi:10.1111/j.2517-6161.1958.tb00292.x) where the target is a class,
least squares where it is a value.

    y = W x + b

Departs from the paper in giving one sum for each class, two for two classes; only their difference counts.
"""

from typing import Annotated, Literal

from torch import Tensor, nn

from nnexp import DataSpec, Range, model
from nnexp.data import as_vector, as_windows
from nnexp.nn import initialise


@model
class Linear(nn.Module):
    """One weighted sum of all inputs for each output: what can be had without a hidden layer.

    Args:
        data: what the dataset says of its tensors.
        context: positions that are read for each prediction, where there is one for each position.
        bias: whether sums have biases.
        init: initial weights; torch is PyTorch's own draw, normal is N(0, 1/fan_in) with zero biases.
    """

    def __init__(
        self,
        data: DataSpec,
        *,
        context: Annotated[int, Range(min=1)] = 8,
        bias: bool = True,
        init: Literal["torch", "normal"] = "torch",
    ) -> None:
        super().__init__()
        self.data, self.context = data, context
        self.head = nn.Linear(context * data.channels if data.per_step else data.features, data.outputs, bias=bias)
        initialise(self, init, 1.0, head=self.head)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, *data.shape) -> (B, outputs), or (B, T, outputs) where data.per_step."""
        if self.data.per_step:
            return self.head(as_windows(x, self.data, self.context, lengths))
        return self.head(as_vector(x, self.data, lengths))
