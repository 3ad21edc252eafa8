"""What rnn, lstm and gru share: layers over time in one or both directions, through torch's kernels or our own.

B rows, T positions, H units. Both paths keep torch's weights and order of gates, and equal `torch.nn`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nnexp.data import DataSpec, as_sequence, last_valid
from nnexp.nn.init import Init, initialise
from nnexp.nn.kernels.op import recurrent


class Recurrent(nn.Module):
    """Recurrent layers one above the other, and an output layer.

    Args:
        data: what the dataset says of its tensors.
        core: the layers, as one of torch's own modules, batch first.
        init: initial weights, see `nnexp.nn.init`.
        init_scale: multiplies every weight matrix but the output's.
    """

    fused = True  # False: our own kernels, which torch.func.vmap can follow

    def __init__(self, data: DataSpec, core: nn.RNNBase, init: Init, init_scale: float) -> None:
        super().__init__()
        if core.bidirectional and data.per_step:
            reason = "a bidirectional layer reads the positions that it has to predict"
            raise ValueError(f"{reason}. Set model.bidirectional=false, or choose data with one answer per row.")
        self.data, self.core = data, core
        self.head = nn.Linear(core.hidden_size * (1 + core.bidirectional), data.outputs, bias=core.bias)
        initialise(self, init, init_scale, head=self.head)

    def suffixes(self) -> list[str]:
        """How torch names the weights of each layer and direction: `l0`, `l0_reverse`, `l1`, ..."""
        ends = ("", "_reverse") if self.core.bidirectional else ("",)
        return [f"l{layer}{end}" for layer in range(self.core.num_layers) for end in ends]

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, *data.shape) -> (B, outputs) after the last valid position, or (B, T, outputs) where data.per_step.

        With two directions, the backward one counts after it has read the first position.
        """
        sequence = as_sequence(x, self.data, lengths)
        read = self._fused if self.fused else self._unfused
        output: Tensor = self.head(read(sequence, lengths))
        return output

    def _fused(self, sequence: Tensor, lengths: Tensor | None) -> Tensor:
        """(B, T, C) -> (B, T, H) where data.per_step, else the last states (B, H or 2H)."""
        states, size = self._states(sequence, lengths), self.core.hidden_size
        if self.data.per_step:
            return states
        forward = last_valid(states[..., :size], lengths)
        return torch.cat([forward, states[:, 0, size:]], dim=-1) if self.core.bidirectional else forward

    def _states(self, sequence: Tensor, lengths: Tensor | None) -> Tensor:
        """(B, T, C) -> (B, T, H or 2H). Padding stands last, so it can only move the backward direction."""
        if lengths is None or not self.core.bidirectional:
            states: Tensor = self.core(sequence)[0]
            return states
        packed = pack_padded_sequence(sequence, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs = self.core(packed)[0]
        return pad_packed_sequence(outputs, batch_first=True, total_length=sequence.shape[1])[0]

    def _unfused(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        """The same as `_fused`. A state stays where the input is padding, so the last one read is that of a row."""
        top = self.core.num_layers - 1
        for layer in range(self.core.num_layers):
            outputs = []
            for end in ("", "_reverse") if self.core.bidirectional else ("",):
                w_ih, w_hh = (getattr(self.core, f"weight_{name}_l{layer}{end}") for name in ("ih", "hh"))
                b_ih, b_hh = (getattr(self.core, f"bias_{name}_l{layer}{end}", None) for name in ("ih", "hh"))
                way = (self.core.mode, bool(end), layer < top or self.data.per_step)
                outputs.append(recurrent(states, w_ih, w_hh, b_ih, b_hh, lengths, *way))
            states = torch.cat(outputs, dim=-1)
        return states
