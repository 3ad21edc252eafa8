"""Base class of the models rnn, lstm and gru: recurrent layers in one or both directions and an output layer.

The layers run through torch's kernels, or through those of `nnexp.nn.kernels` under vmap. Both use the weights and the
gate order of `torch.nn` and compute the same function. Shapes: B rows, T positions, C channels, H units.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nnexp.data import DataSpec, as_sequence, last_valid
from nnexp.nn.init import Init, initialise
from nnexp.nn.kernels.op import recurrent


class Recurrent(nn.Module):
    """Stacked recurrent layers and an output layer.

        class GRU(Recurrent):
            def __init__(self, data: DataSpec, *, hidden_size: int = 32):
                super().__init__(data, nn.GRU(data.channels, hidden_size, batch_first=True), "torch", 1.0)

    Args:
        data: specification of the dataset.
        core: the layers as a module of torch, with `batch_first=True`.
        init: initial weights, see `nnexp.nn.init`.
        init_scale: factor of every weight matrix except the output layer's.

    Raises:
        ValueError: bidirectional layers for per-step targets, which would read what they predict.
    """

    fused = True  # False: the kernels of nnexp.nn.kernels, which torch.func.vmap supports

    def __init__(self, data: DataSpec, core: nn.RNNBase, init: Init, init_scale: float) -> None:
        super().__init__()
        if core.bidirectional and data.per_step:
            reason = "a bidirectional layer reads the positions that it has to predict"
            raise ValueError(f"{reason}. Set model.bidirectional=false, or choose data with one target per row.")
        self.data, self.core = data, core
        self.head = nn.Linear(core.hidden_size * (1 + core.bidirectional), data.outputs, bias=core.bias)
        initialise(self, init, init_scale, head=self.head)

    def suffixes(self) -> list[str]:
        """Return the suffixes of torch's weight names by layer and direction: `l0`, `l0_reverse`, `l1`, ..."""
        ends = ("", "_reverse") if self.core.bidirectional else ("",)
        return [f"l{layer}{end}" for layer in range(self.core.num_layers) for end in ends]

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return predictions (B, outputs) from the last states, or (B, T, outputs) if `data.per_step`.

        The last state is that at a row's last valid position; of a backward layer, that at its first position.

        Args:
            x: inputs (B, *data.shape).
            lengths: (B,) integers; positions from there on are padding. None: no padding.
        """
        sequence = as_sequence(x, self.data, lengths)
        read = self._fused if self.fused else self._unfused
        output: Tensor = self.head(read(sequence, lengths))
        return output

    def _fused(self, sequence: Tensor, lengths: Tensor | None) -> Tensor:
        """Map sequences (B, T, C) to states (B, T, H) if `data.per_step`, else to the last states (B, H or 2H)."""
        states, size = self._states(sequence, lengths), self.core.hidden_size
        if self.data.per_step:
            return states
        forward = last_valid(states[..., :size], lengths)
        return torch.cat([forward, states[:, 0, size:]], dim=-1) if self.core.bidirectional else forward

    def _states(self, sequence: Tensor, lengths: Tensor | None) -> Tensor:
        """Map sequences (B, T, C) to states (B, T, H or 2H).

        Padding comes last, so only a backward layer needs packing to keep it out of valid positions.
        """
        if lengths is None or not self.core.bidirectional:
            states: Tensor = self.core(sequence)[0]
            return states
        packed = pack_padded_sequence(sequence, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs = self.core(packed)[0]
        return pad_packed_sequence(outputs, batch_first=True, total_length=sequence.shape[1])[0]

    def _unfused(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        """Map the same as `_fused`. States do not change at padding, so the final state is the last valid one."""
        top = self.core.num_layers - 1
        for layer in range(self.core.num_layers):
            outputs = []
            for end in ("", "_reverse") if self.core.bidirectional else ("",):
                w_ih, w_hh = (getattr(self.core, f"weight_{name}_l{layer}{end}") for name in ("ih", "hh"))
                b_ih, b_hh = (getattr(self.core, f"bias_{name}_l{layer}{end}", None) for name in ("ih", "hh"))
                options = (self.core.mode, bool(end), layer < top or self.data.per_step)
                outputs.append(recurrent(states, w_ih, w_hh, b_ih, b_hh, lengths, *options))
            states = torch.cat(outputs, dim=-1)
        return states
