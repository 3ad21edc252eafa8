"""Recording of the hidden states of a recurrent model at every position, with gradients.

Torch's kernels return no intermediate state that a gradient can be taken of. While recording, torch's recurrent layers
and cells therefore compute step by step in Python. Any other layer counts as a cell if it is called once per position
and its first output influences its last.

Shapes: B rows, T positions, C channels, H units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from nnexp.data import valid_positions
from nnexp.probing.recurrent_steps import State, Step, mode_of, scan_layer, step_of

InitialState = Callable[[Tensor], Tensor]  # maps the initial state (B, H) that the model uses to another
FORWARDS = (nn.RNN.forward, nn.LSTM.forward, nn.GRU.forward)
FoundCells = dict[str, tuple[bool, list[int]]]  # by path: whether it reads the last position first, state outputs
STATE_NAMES = ("h", "c")


@dataclass
class StateTrack:
    """States of one direction of a layer, or of a cell, in the order of positions.

    Attributes:
        is_reverse: whether the last position is read first.
        states: for "h", and "c" of an LSTM, the tensors (B, H) after each step.
        gates: for each gate, such as "forget", the tensors (B, H) with values from 0 to 1, detached.
    """

    is_reverse: bool = False
    states: dict[str, list[Tensor]] = field(default_factory=dict)
    gates: dict[str, list[Tensor]] = field(default_factory=dict)

    def add(self, steps: list[Step]) -> None:
        """Append steps."""
        for states, gates in steps:
            for name, state in zip(STATE_NAMES, states, strict=False):
                self.states.setdefault(name, []).append(state)
            for name, gate in gates.items():
                self.gates.setdefault(name, []).append(gate.detach())


class StateRecorder:
    """Records the states of a forward pass; created by `record_states`.

    Args:
        module: the model.
        initial_state: replaces the initial states of everything that reads forward; None keeps the model's own.
        found_cells: cells other than torch's, from `found_cells` of an earlier recording; None searches for them.

    Attributes:
        tracks: the recorded states, by path: `core.l0`, `core.l0_reverse`, `cell`.
        found_cells: cells other than torch's; filled by `find_cells`.
    """

    def __init__(self, module: nn.Module, initial_state: InitialState | None, found_cells: FoundCells | None) -> None:
        self.tracks: dict[str, StateTrack] = {}
        self.initial_state, self.found_cells = initial_state, found_cells or {}
        layers = [(path, layer) for path, layer in module.named_modules() if path]
        self.layers = [(path, layer) for path, layer in layers if _is_layer(layer)]
        self.cells = [(path, layer) for path, layer in layers if isinstance(layer, nn.RNNCellBase)]
        torch_paths = [path for path, _ in self.layers + self.cells]
        self.candidates = [
            (path, layer)
            for path, layer in layers
            if path not in torch_paths
            and not _contains_any(path, torch_paths)
            and (_has_weights(layer) if found_cells is None else path in found_cells)
        ]
        self.outputs: dict[str, list[list[Tensor]]] = {}

    def track(self, path: str, is_reverse: bool = False) -> StateTrack:
        """Return the track of a path, new at its first use."""
        return self.tracks.setdefault(path, StateTrack(is_reverse))

    def state_before(self, path: str, state: State, is_reverse: bool = False) -> State:
        """Return the state before a step, with `initial_state` applied before the first."""
        is_first = path not in self.tracks
        return tuple(map(self.initial_state, state)) if self.initial_state and is_first and not is_reverse else state

    def run_layers(self, path: str, layers: nn.RNNBase, x: Any, hx: Any = None) -> Any:
        """Replace `forward` of torch's recurrent layers."""
        if isinstance(x, PackedSequence):
            return self._run_packed(path, layers, x, hx)
        if x.dim() != 3:
            return type(layers).forward(layers, x, hx)
        y, last = self._run(path, layers, x if layers.batch_first else x.transpose(0, 1), hx)
        return (y if layers.batch_first else y.transpose(0, 1)), last

    def _run_packed(self, path: str, layers: nn.RNNBase, x: PackedSequence, hx: Any) -> Any:
        padded, lengths = pad_packed_sequence(x, batch_first=True)
        y, last = self._run(path, layers, padded, hx, valid_positions(lengths.to(padded.device), padded.shape[1]))
        if x.sorted_indices is not None:
            y, lengths = y[x.sorted_indices], lengths[x.sorted_indices.cpu()]
        packed = pack_padded_sequence(y, lengths, batch_first=True)
        return PackedSequence(packed.data, x.batch_sizes, x.sorted_indices, x.unsorted_indices), last

    def _run(self, path: str, layers: nn.RNNBase, x: Tensor, hx: Any, valid: Tensor | None = None) -> Any:
        """Map (B, T, C) to (B, T, H or 2H), and return the final states as torch does."""
        initial = hx if hx is None or isinstance(hx, tuple) else (hx,)
        last: list[State] = []
        for layer in range(layers.num_layers):
            outputs = []
            for end in ("", "_reverse") if layers.bidirectional else ("",):
                name = f"l{layer}{end}"
                sizes = [layers.proj_size or layers.hidden_size, layers.hidden_size][: 1 + (layers.mode == "LSTM")]
                state = tuple(x.new_zeros(len(x), size) for size in sizes)
                if initial is not None:
                    state = tuple(part[len(last)] for part in initial)
                state = self.state_before(f"{path}.{name}", state, bool(end))
                steps, state = scan_layer(layers, name, x, state, valid, is_reverse=bool(end))
                self.track(f"{path}.{name}", bool(end)).add(steps)
                last.append(state)
                outputs.append(torch.stack([states[0] for states, _ in steps], 1))
            x = torch.cat(outputs, -1)
            if layer < layers.num_layers - 1:
                x = F.dropout(x, layers.dropout, layers.training)
        ends = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
        return x, ends if len(ends) > 1 else ends[0]

    def run_cell(self, path: str, cell: nn.RNNCellBase, x: Tensor, hx: Any = None) -> Any:
        """Replace `forward` of torch's recurrent cells."""
        mode = mode_of(cell)
        state = hx if isinstance(hx, tuple) else (hx,)
        if hx is None:
            state = tuple(x.new_zeros(*x.shape[:-1], cell.hidden_size) for _ in range(1 + (mode == "LSTM")))
        sums = F.linear(x, cell.weight_ih, cell.bias_ih)
        step = step_of(mode, sums, self.state_before(path, state), cell.weight_hh, cell.bias_hh)
        self.track(path).add([step])
        return step[0] if mode == "LSTM" else step[0][0]

    def hook(self, path: str, layer: nn.Module, inputs: Any, output: Any) -> Any:
        """Record the outputs of a layer that may be a cell; its first output is taken as its initial state."""
        calls = self.outputs.setdefault(path, [])
        if self.initial_state and not calls:
            replace, is_tensor = self.initial_state, isinstance(output, Tensor)
            output = replace(output) if is_tensor else tuple(replace(t) if _is_state(t) else t for t in output)
        parts = output if isinstance(output, tuple | list) else [output]
        calls.append([part for part in parts if _is_state(part)])
        return output

    def find_cells(self, num_steps: int, x: Tensor | None, axis: int = 1) -> None:
        """Find layers other than torch's that act as recurrent cells, and add their tracks.

        A cell is a layer that was called once per position and whose last outputs depend on its first.

        Args:
            num_steps: number of positions.
            x: input of the model that requires a gradient, to find out which end a cell reads first; None assumes the
                first position.
            axis: axis of positions in x.
        """
        for path, _ in self.candidates:
            calls = self.outputs.get(path, [])
            is_called_each_step = len(calls) == num_steps and num_steps > 1 and _have_same_shapes(calls)
            if not is_called_each_step or _is_inside(path, self.found_cells):
                continue
            states = [number for number, first in enumerate(calls[0]) if _gradient(calls[-1], first) is not None]
            if states:
                self.found_cells[path] = (_reads_last(x, axis, calls[0]), states)
        self.add_found_cells()

    def add_found_cells(self) -> None:
        """Add the tracks of `found_cells`."""
        for path, (is_reverse, states) in self.found_cells.items():
            steps: list[Step] = [(tuple(parts[n] for n in states), {}) for parts in self.outputs[path]]
            self.track(path, is_reverse).add(steps[::-1] if is_reverse else steps)


@contextmanager
def record_states(
    module: nn.Module, initial_state: InitialState | None = None, found_cells: FoundCells | None = None
) -> Iterator[StateRecorder]:
    """Record the states of one forward pass within the block.

        with record_states(view.module) as record:
            output = view.module(x, *lengths)
        record.find_cells(view.data.max_length, None)
        h = torch.stack(record.tracks["core.l0"].states["h"], dim=1)  # (B, T, H)

    Args:
        module: the model.
        initial_state: replaces the initial states of everything that reads forward; None keeps the model's own.
        found_cells: cells other than torch's, from `found_cells` of an earlier recording, to be added with
            `add_found_cells`; None records all layers, for `find_cells` to search.
    """
    record = StateRecorder(module, initial_state, found_cells)
    handles = [layer.register_forward_hook(partial(record.hook, path)) for path, layer in record.candidates]
    for path, layers in record.layers:
        layers.forward = partial(record.run_layers, path, layers)
    for path, cell in record.cells:
        cell.forward = partial(record.run_cell, path, cell)
    try:
        yield record
    finally:
        for _, layer in record.layers + record.cells:
            del layer.forward
        for handle in handles:
            handle.remove()


def _is_layer(layer: nn.Module) -> bool:
    return isinstance(layer, nn.RNNBase) and type(layer).forward in FORWARDS


def _has_weights(layer: nn.Module) -> bool:
    return next(layer.parameters(), None) is not None


def _is_state(part: Any) -> bool:
    return isinstance(part, Tensor) and part.is_floating_point() and part.ndim == 2


def _have_same_shapes(calls: list[list[Tensor]]) -> bool:
    """Return whether all calls returned states, of the same shapes."""
    shapes = [[part.shape for part in parts] for parts in calls]
    return bool(shapes[0]) and all(shape == shapes[0] for shape in shapes)


def _contains_any(path: str, paths: Iterable[str]) -> bool:
    return any(inner.startswith(f"{path}.") for inner in paths)


def _is_inside(path: str, paths: Iterable[str]) -> bool:
    return any(path.startswith(f"{outer}.") for outer in paths)


def _gradient(outputs: list[Tensor], of: Tensor) -> Tensor | None:
    """Return the gradient of the outputs' sum, or None where they do not depend on the tensor."""
    total = torch.stack([output.sum() for output in outputs]).sum()
    if not (total.requires_grad and of.requires_grad):
        return None
    return torch.autograd.grad(total, of, retain_graph=True, allow_unused=True)[0]


def _reads_last(x: Tensor | None, axis: int, outputs: list[Tensor]) -> bool:
    gradient = None if x is None else _gradient(outputs, x)
    if gradient is None:
        return False
    at = gradient.movedim(axis, 0)
    return not at[0].any() and bool(at[-1].any())
