"""The steps of torch's recurrent layers and cells, one by one, by their equations and with their own weights:

    RNN   h = f(W x + U h)
    LSTM  i, f, o = sigmoid(W x + U h),  g = tanh(W x + U h),  c = f c + i g,  h = o tanh(c)
    GRU   r, z = sigmoid(W x + U h),  n = tanh(W x + r (U h)),  h = (1 - z) n + z h

B rows, T positions, C channels, H units, G units of all gates.
"""

from __future__ import annotations

from torch import Tensor, nn, where
from torch.nn import functional as F

State = tuple[Tensor, ...]  # (h,), or (h, c) of an LSTM, each (B, H)
Step = tuple[State, dict[str, Tensor]]  # the state after it, and its gates by name


def mode_of(cell: nn.RNNCellBase) -> str:
    if isinstance(cell, nn.RNNCell):
        return f"RNN_{cell.nonlinearity.upper()}"
    return "LSTM" if isinstance(cell, nn.LSTMCell) else "GRU"


def scan_layer(
    layers: nn.RNNBase, name: str, x: Tensor, state: State, valid: Tensor | None, *, is_reverse: bool
) -> tuple[list[Step], State]:
    """One direction of one layer: its steps in the order of positions, and the state in which it ends.

    Where a position is not valid, what its step gives is left out: the state stays.
    """
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    w_ih, w_hh, b_ih, b_hh, w_hr = (getattr(layers, f"{each}_{name}", None) for each in names)
    assert w_ih is not None
    assert w_hh is not None
    sums = F.linear(x, w_ih, b_ih).unbind(1)
    steps: list[Step] = []
    for t in range(len(sums))[:: -1 if is_reverse else 1]:
        new, gates = step_of(layers.mode, sums[t], state, w_hh, b_hh, w_hr)
        steps.append((new, gates))
        if valid is not None:
            new = tuple(where(valid[:, t, None], now, old) for now, old in zip(new, state, strict=True))
        state = new
    return (steps[::-1] if is_reverse else steps), state


def step_of(
    mode: str, sums: Tensor, state: State, w_hh: Tensor, b_hh: Tensor | None, w_hr: Tensor | None = None
) -> Step:
    """sums (B, G) are of the input, with its bias."""
    own = F.linear(state[0], w_hh, b_hh)
    if mode == "LSTM":
        return _lstm(sums + own, state[1], w_hr)
    if mode == "GRU":
        return _gru(sums, own, state[0])
    total = sums + own
    return (total.tanh() if mode == "RNN_TANH" else total.relu(),), {}


def _lstm(sums: Tensor, c: Tensor, w_hr: Tensor | None) -> Step:
    i, f, _, o = sums.sigmoid().chunk(4, -1)
    c = f * c + i * sums.chunk(4, -1)[2].tanh()
    h = o * c.tanh()
    return (h if w_hr is None else F.linear(h, w_hr), c), {"input": i, "forget": f, "output": o}


def _gru(sums: Tensor, own: Tensor, h: Tensor) -> Step:
    size = h.shape[-1]
    r, z = (sums[..., : 2 * size] + own[..., : 2 * size]).sigmoid().chunk(2, -1)
    n = (sums[..., 2 * size :] + r * own[..., 2 * size :]).tanh()
    return ((1 - z) * n + z * h,), {"reset": r, "update": z}
