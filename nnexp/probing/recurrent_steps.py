"""Single steps of torch's recurrent layers and cells, written out so that every state has a gradient.

    RNN   h = f(W x + U h)
    LSTM  i, f, o = sigmoid(W x + U h),  g = tanh(W x + U h),  c = f c + i g,  h = o tanh(c)
    GRU   r, z = sigmoid(W x + U h),  n = tanh(W x + r (U h)),  h = (1 - z) n + z h

Shapes: B rows, T positions, C channels, H units, G units of all gates together.
"""

from __future__ import annotations

from torch import Tensor, nn, where
from torch.nn import functional as F

State = tuple[Tensor, ...]  # (h,), or (h, c) of an LSTM, each (B, H)
Step = tuple[State, dict[str, Tensor]]  # the state after it, and its gates by name


def mode_of(cell: nn.RNNCellBase) -> str:
    """Return the mode of a cell as torch's layers name it: RNN_TANH, RNN_RELU, LSTM or GRU."""
    if isinstance(cell, nn.RNNCell):
        return f"RNN_{cell.nonlinearity.upper()}"
    return "LSTM" if isinstance(cell, nn.LSTMCell) else "GRU"


def scan_layer(
    layers: nn.RNNBase, name: str, x: Tensor, state: State, valid: Tensor | None, *, is_reverse: bool
) -> tuple[list[Step], State]:
    """Run one direction of one layer over a sequence.

    Args:
        layers: the module with the weights.
        name: suffix of its weights, such as "l0" or "l0_reverse".
        x: (B, T, C).
        state: the state before the first step.
        valid: (B, T), False at padded positions, which keep the state; None where nothing is padded.
        is_reverse: whether the last position is read first.

    Returns:
        The T steps in the order of positions, and the state after the last one read.
    """
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    w_ih, w_hh, b_ih, b_hh, w_hr = (getattr(layers, f"{each}_{name}", None) for each in names)
    assert w_ih is not None
    assert w_hh is not None
    input_sums = F.linear(x, w_ih, b_ih).unbind(1)
    steps: list[Step] = []
    for t in range(len(input_sums))[:: -1 if is_reverse else 1]:
        new, gates = step_of(layers.mode, input_sums[t], state, w_hh, b_hh, w_hr)
        steps.append((new, gates))
        if valid is not None:
            new = tuple(where(valid[:, t, None], now, old) for now, old in zip(new, state, strict=True))
        state = new
    return (steps[::-1] if is_reverse else steps), state


def step_of(
    mode: str, input_sums: Tensor, state: State, w_hh: Tensor, b_hh: Tensor | None, w_hr: Tensor | None = None
) -> Step:
    """Compute one step.

    Args:
        mode: RNN_TANH, RNN_RELU, LSTM or GRU.
        input_sums: (B, G), W x of the step's input with its bias.
        state: the state before the step.
        w_hh: (G, H), recurrent weights.
        b_hh: (G,), their bias.
        w_hr: projection of an LSTM's h, where it has one.
    """
    recurrent_sums = F.linear(state[0], w_hh, b_hh)
    if mode == "LSTM":
        return _lstm(input_sums + recurrent_sums, state[1], w_hr)
    if mode == "GRU":
        return _gru(input_sums, recurrent_sums, state[0])
    total = input_sums + recurrent_sums
    return (total.tanh() if mode == "RNN_TANH" else total.relu(),), {}


def _lstm(sums: Tensor, c: Tensor, w_hr: Tensor | None) -> Step:
    i, f, _, o = sums.sigmoid().chunk(4, -1)
    c = f * c + i * sums.chunk(4, -1)[2].tanh()
    h = o * c.tanh()
    return (h if w_hr is None else F.linear(h, w_hr), c), {"input": i, "forget": f, "output": o}


def _gru(input_sums: Tensor, recurrent_sums: Tensor, h: Tensor) -> Step:
    size = h.shape[-1]
    r, z = (input_sums[..., : 2 * size] + recurrent_sums[..., : 2 * size]).sigmoid().chunk(2, -1)
    n = (input_sums[..., 2 * size :] + r * recurrent_sums[..., 2 * size :]).tanh()
    return ((1 - z) * n + z * h,), {"reset": r, "update": z}
