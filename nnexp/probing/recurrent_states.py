"""The states of a recurrent model at every step: torch's own kernels give none of which a gradient can be asked.

In a block, torch's layers and cells compute step by step. Any other layer that is called at each step is taken as a
cell, where what it gives moves what it gives later. B rows, T positions, C channels, H units.
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

Start = Callable[[Tensor], Tensor]  # what a state is to be in place of the one given, before the first step
FORWARDS = (nn.RNN.forward, nn.LSTM.forward, nn.GRU.forward)
Moving = dict[str, tuple[bool, list[int]]]  # by path: whether it reads the last position first, and which outputs
LETTERS = ("h", "c")


@dataclass
class StateTrack:
    """What one direction of a layer, or a cell, held after each step, in the order of positions.

    Args:
        is_reverse: whether it reads the last position first.
        states: tensors (B, H) by letter.
        gates: the same, from 0 to 1, by name.
    """

    is_reverse: bool = False
    states: dict[str, list[Tensor]] = field(default_factory=dict)
    gates: dict[str, list[Tensor]] = field(default_factory=dict)

    def add(self, steps: list[Step]) -> None:
        for states, gates in steps:
            for letter, state in zip(LETTERS, states, strict=False):
                self.states.setdefault(letter, []).append(state)
            for name, gate in gates.items():
                self.gates.setdefault(name, []).append(gate.detach())


class StateRecorder:
    """The tracks of a forward pass, by the layer's path: `core.l0`, `core.l0_reverse`, `cell`.

    Args:
        module: the model.
        start: gives initial states, of all that reads forward; None leaves the model's own.
        moving: cells that are not torch's, as an earlier recording found them; None looks for them.
    """

    def __init__(self, module: nn.Module, start: Start | None, moving: Moving | None) -> None:
        self.tracks: dict[str, StateTrack] = {}
        self.start, self.moving = start, moving or {}
        layers = [(path, layer) for path, layer in module.named_modules() if path]
        self.layers = [(path, layer) for path, layer in layers if _is_layer(layer)]
        self.cells = [(path, layer) for path, layer in layers if isinstance(layer, nn.RNNCellBase)]
        known = [path for path, _ in self.layers + self.cells]
        self.others = [
            (path, layer)
            for path, layer in layers
            if path not in known
            and not _holds(path, known)
            and (_has_weights(layer) if moving is None else path in moving)
        ]
        self.given: dict[str, list[list[Tensor]]] = {}

    def track(self, path: str, is_reverse: bool = False) -> StateTrack:
        return self.tracks.setdefault(path, StateTrack(is_reverse))

    def begun(self, path: str, state: State, is_reverse: bool = False) -> State:
        """The state before a step: the one given, but for the first."""
        is_first = path not in self.tracks
        return tuple(map(self.start, state)) if self.start and is_first and not is_reverse else state

    def run_layers(self, path: str, layers: nn.RNNBase, x: Any, hx: Any = None) -> Any:
        """In place of `forward` of torch's layers."""
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
        """(B, T, C) -> (B, T, H or 2H), and the states in which each layer ends."""
        given = hx if hx is None or isinstance(hx, tuple) else (hx,)
        last: list[State] = []
        for layer in range(layers.num_layers):
            outputs = []
            for end in ("", "_reverse") if layers.bidirectional else ("",):
                name = f"l{layer}{end}"
                sizes = [layers.proj_size or layers.hidden_size, layers.hidden_size][: 1 + (layers.mode == "LSTM")]
                state = tuple(x.new_zeros(len(x), size) for size in sizes)
                if given is not None:
                    state = tuple(part[len(last)] for part in given)
                state = self.begun(f"{path}.{name}", state, bool(end))
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
        """In place of `forward` of torch's cells."""
        mode = mode_of(cell)
        state = hx if isinstance(hx, tuple) else (hx,)
        if hx is None:
            state = tuple(x.new_zeros(*x.shape[:-1], cell.hidden_size) for _ in range(1 + (mode == "LSTM")))
        sums = F.linear(x, cell.weight_ih, cell.bias_ih)
        step = step_of(mode, sums, self.begun(path, state), cell.weight_hh, cell.bias_hh)
        self.track(path).add([step])
        return step[0] if mode == "LSTM" else step[0][0]

    def hook(self, path: str, layer: nn.Module, inputs: Any, output: Any) -> Any:
        """What any other layer gives; its first stands for its initial state."""
        calls = self.given.setdefault(path, [])
        if self.start and not calls:
            is_one = isinstance(output, Tensor)
            output = self.start(output) if is_one else tuple(self.start(t) if _is_state(t) else t for t in output)
        parts = output if isinstance(output, tuple | list) else [output]
        calls.append([part for part in parts if _is_state(part)])
        return output

    def find_cells(self, num_steps: int, x: Tensor | None, axis: int = 1) -> None:
        """Find those other layers that were called at each step, and whose first output moved their last.

        Args:
            x: what the model was given, if a gradient of it can be asked; tells which end a cell reads first.
            axis: of its positions.
        """
        for path, _ in self.others:
            calls = self.given.get(path, [])
            if len(calls) != num_steps or num_steps < 2 or not _fits(calls) or _is_inside(path, self.moving):
                continue
            moving = [number for number, first in enumerate(calls[0]) if _gradient(calls[-1], first) is not None]
            if moving:
                self.moving[path] = (_reads_last(x, axis, calls[0]), moving)
        self.take_cells()

    def take_cells(self) -> None:
        """Make tracks of the cells that are not torch's."""
        for path, (is_reverse, moving) in self.moving.items():
            steps: list[Step] = [(tuple(parts[n] for n in moving), {}) for parts in self.given[path]]
            self.track(path, is_reverse).add(steps[::-1] if is_reverse else steps)


@contextmanager
def record_states(
    module: nn.Module, start: Start | None = None, moving: Moving | None = None
) -> Iterator[StateRecorder]:
    """The states of one forward pass in the block; see `Recording`."""
    record = StateRecorder(module, start, moving)
    handles = [layer.register_forward_hook(partial(record.hook, path)) for path, layer in record.others]
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


def _fits(calls: list[list[Tensor]]) -> bool:
    """Whether each call gave numbers of the same shapes."""
    shapes = [[part.shape for part in parts] for parts in calls]
    return bool(shapes[0]) and all(shape == shapes[0] for shape in shapes)


def _holds(path: str, paths: Iterable[str]) -> bool:
    return any(inner.startswith(f"{path}.") for inner in paths)


def _is_inside(path: str, paths: Iterable[str]) -> bool:
    return any(path.startswith(f"{outer}.") for outer in paths)


def _gradient(outputs: list[Tensor], of: Tensor) -> Tensor | None:
    """None where outputs do not depend on a tensor."""
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
