"""Base class of probe plugins, which observe a model during training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from nnexp.probing.view import View
from nnexp.registry import Observation, Range


@dataclass(kw_only=True)
class Probe:
    """Base class of probe plugins, which observe a model during training.

    A probe is created once per run and called with a `nnexp.probing.View` at each scheduled step. The view holds
    private copies of the model and of the training state, so a probe cannot change the training it observes.

        @probe
        @dataclass(kw_only=True)
        class Weight(Probe):
            def __call__(self, view: View) -> Observation:
                norm = view.weights.vector.norm().item()
                return Observation({"norm": norm}, {"norm": Picture("Norm of the weights", {"norm": [norm]}, draw)})

        def draw(figure, numbers):
            nnexp.plotting.dots(figure.subplots(), ["all"], {"norm": numbers["norm"]}, "norm")

    Args:
        every: number of updates between observations. "log" observes at steps 0, 10, 100, 1000 and so on, "ends" at the
            first and the last step only; the last step is always observed. At most ten pictures of one name are drawn.
    """

    every: Annotated[int, Range(min=1)] | Literal["log", "ends"] = "log"

    def __call__(self, view: View) -> Observation | None:
        """Observe the model at one step.

        Args:
            view: the model, data and next update at this step.

        Returns:
            The observation, or None if this probe does not apply to the model or the data; it is then not called again
            in this run.
        """
        raise TypeError(f"{type(self).__name__} must define __call__(view)")
