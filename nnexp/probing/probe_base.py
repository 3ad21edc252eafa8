"""What looks into a model while it trains: the base of every probe plugin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from nnexp.probing.view import View
from nnexp.registry import Observation, Range


@dataclass(kw_only=True)
class Probe:
    """What looks into a model while it trains: the base of every probe plugin.

    It is made once for a run, and called at its steps with a `nnexp.probing.View` of one lane: its own copy of the
    model and of all that training goes on from, so that nothing it does changes training.

        @probe
        @dataclass(kw_only=True)
        class Weight(Probe):
            def __call__(self, view: View) -> Observation:
                norm = view.weights.vector.norm().item()
                return Observation({"norm": norm}, {"norm": Picture("Norm of the weights", {"norm": [norm]}, draw)})

        def draw(figure, numbers):
            nnexp.plotting.charts.dots(figure.subplots(), ["all"], {"norm": numbers["norm"]}, "norm")

    Args:
        every: updates between two looks; log looks at steps 0, 10, 100, 1000 and so on, ends at the first and the
            last alone. All look at the last step. Of each picture at most ten are drawn.
    """

    every: Annotated[int, Range(min=1)] | Literal["log", "ends"] = "log"

    def __call__(self, view: View) -> Observation | None:
        """What there is to see; None where this probe has nothing to say of such a model or such data, and need not be
        asked again.
        """
        raise TypeError(f"{type(self).__name__} must define __call__(view)")
