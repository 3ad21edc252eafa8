"""A linear model: logistic regression (Cox, 1958, doi:10.1111/j.2517-6161.1958.tb00292.x) where the target is a class,
least squares where it is a value.

    y = W x + b

Departs from the paper in having one output per class, two for two classes; only their difference matters.
"""

from typing import Annotated, Literal

from torch import Tensor, nn

from nnexp import DataSpec, Range, model
from nnexp.data import as_vector, as_windows
from nnexp.nn import initialise


@model
class Linear(nn.Module):
    """Linear map from all inputs to the outputs: the baseline without a hidden layer.

    Args:
        data: specification of the dataset's tensors.
        context: positions read for each prediction, for data with a target at each position.
        bias: add biases.
        init: initial weights: PyTorch's defaults (torch), or N(0, 1/fan_in) with zero biases (normal).
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
        """Return outputs (B, outputs), or (B, T, outputs) where data.per_step, for inputs (B, *data.shape)."""
        if self.data.per_step:
            inputs = as_windows(x, self.data, self.context, lengths)
        else:
            inputs = as_vector(x, self.data, lengths)
        output: Tensor = self.head(inputs)
        return output
