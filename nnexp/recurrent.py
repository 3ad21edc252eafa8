"""What rnn, lstm and gru share: layers over time in one or both directions, through torch's kernel or an own loop.

B rows, T positions, H units, G gates. Both paths keep torch's weights and order of gates, and equal `torch.nn`.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nnexp.init import Init, initialise
from nnexp.spec import DataSpec
from nnexp.views import as_sequence, last_valid, valid_positions

State = tuple[Tensor, ...]


class Recurrent(nn.Module):
    """A stack of recurrent layers and an output layer. A subclass gives one step of its cell.

    Args:
        data: what the dataset says of its tensors.
        core: the layers, as one of torch's own modules, batch first.
        init: initial weights, see `nnexp.init`.
        init_scale: multiplies every weight matrix but the output's.
    """

    fused = True  # False: the own loop over time, which torch.func.vmap can follow
    num_states = 1

    def __init__(self, data: DataSpec, core: nn.RNNBase, init: Init, init_scale: float) -> None:
        super().__init__()
        if core.bidirectional and data.per_step:
            reason = "a bidirectional layer reads the positions that it has to predict"
            raise ValueError(f"{reason}. Set model.bidirectional=false, or choose data with one answer per row.")
        self.data, self.core = data, core
        self.head = nn.Linear(core.hidden_size * (1 + core.bidirectional), data.outputs, bias=core.bias)
        initialise(self, init, init_scale, head=self.head)

    def cell(self, inputs: Tensor, recurrent: Tensor, state: State) -> State:
        """The next state, h first, from the two weighted sums (B, G*H) of input and h."""
        raise TypeError(f"{type(self).__name__} must define cell")

    def suffixes(self) -> list[str]:
        """How torch names the weights of each layer and direction: `l0`, `l0_reverse`, `l1`, ..."""
        ends = ("", "_reverse") if self.core.bidirectional else ("",)
        return [f"l{layer}{end}" for layer in range(self.core.num_layers) for end in ends]

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, *data.shape) -> (B, outputs) after the last valid position, or (B, T, outputs) where data.per_step.

        With two directions, the backward one counts after it has read the first position.
        """
        sequence = as_sequence(x, self.data, lengths)
        states = self._kernel(sequence, lengths) if self.fused else self._loop(sequence, lengths)
        output: Tensor = self.head(states if self.data.per_step else self._last(states, lengths))
        return output

    def _last(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        size = self.core.hidden_size
        forward = last_valid(states[..., :size], lengths)
        return torch.cat([forward, states[:, 0, size:]], dim=-1) if self.core.bidirectional else forward

    def _kernel(self, sequence: Tensor, lengths: Tensor | None) -> Tensor:
        """(B, T, C) -> (B, T, H or 2H). Padding stands last, so it can only move the backward direction."""
        if lengths is None or not self.core.bidirectional:
            states: Tensor = self.core(sequence)[0]
            return states
        packed = pack_padded_sequence(sequence, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs = self.core(packed)[0]
        return pad_packed_sequence(outputs, batch_first=True, total_length=sequence.shape[1])[0]

    def _loop(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        """The same as `_kernel`, in operations that work under vmap; a state stays where the input is padding."""
        valid = None if lengths is None else valid_positions(lengths, states.shape[1]).unsqueeze(-1).unbind(1)
        for layer in range(self.core.num_layers):
            outputs = [self._direction(states, valid, f"l{layer}", reverse=False)]
            if self.core.bidirectional:
                outputs.append(self._direction(states, valid, f"l{layer}_reverse", reverse=True))
            states = torch.cat(outputs, dim=-1)
        return states

    def _direction(self, sequence: Tensor, valid: Iterable[Tensor] | None, suffix: str, reverse: bool) -> Tensor:
        w_ih, w_hh = (getattr(self.core, f"weight_{name}_{suffix}") for name in ("ih", "hh"))
        b_ih, b_hh = (getattr(self.core, f"bias_{name}_{suffix}", None) for name in ("ih", "hh"))
        steps: list[tuple[Tensor, Tensor | None]] = [(at_t, None) for at_t in linear(sequence, w_ih, b_ih).unbind(1)]
        if valid is not None:
            steps = [(at_t, ok) for (at_t, _), ok in zip(steps, valid, strict=True)]
        zero = sequence.new_zeros(sequence.shape[0], self.core.hidden_size)
        state: State = (zero,) * self.num_states
        outputs = []
        for at_t, ok in reversed(steps) if reverse else steps:
            new = self.cell(at_t, linear(state[0], w_hh, b_hh), state)
            state = new if ok is None else tuple(torch.where(ok, n, old) for n, old in zip(new, state, strict=True))
            outputs.append(state[0])
        return torch.stack(outputs[::-1] if reverse else outputs, dim=1)
