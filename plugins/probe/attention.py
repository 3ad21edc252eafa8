"""Attention weights and their entropy (Bahdanau, Cho & Bengio, 2015, arXiv:1409.0473; with heads, Vaswani et al., 2017,
arXiv:1706.03762).

    A = softmax(q k^T / sqrt(d)),  mean entropy of a layer = mean over heads and queries of -sum_j A_ij log2 A_ij  bits

Departs from the papers in requiring no knowledge of the model: attention is any batched matrix product, as torch
dispatches it, with one factor whose rows are nonnegative and sum to 1. This finds torch's own modules and functions as
well as attention that a model writes out, but not weights that are applied without a matrix product. An entropy of 0
bits is attention to a single position, log2 n bits uniform attention to n positions. Means are over the longest of the
first validation rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from nnexp import Observation, Picture, Probe, probe
from nnexp.plotting import colour_bar, label, mosaic, rounded, shortened
from nnexp.probing import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 4
MAX_LAYERS, MAX_HEADS, MAX_POSITIONS = 4, 4, 40
# Operations, and the positions of the factors among their arguments.
PRODUCTS = {torch.ops.aten.bmm.default: (0, 1), torch.ops.aten.baddbmm.default: (1, 2)}


@probe
@dataclass(kw_only=True)
class Attention(Probe):
    """Attention maps of each layer and head, and the mean entropy of each layer in bits."""

    def __call__(self, view: View) -> Observation | None:
        """Return entropies by layer and maps of one row; None where the model has no attention."""
        x, _, *lengths = view.rows("val", 64)
        longest = (
            lengths[0].argsort(descending=True, stable=True)[:ROWS] if lengths else torch.arange(min(ROWS, len(x)))
        )
        first, *others = ([t[place : place + 1] for t in (x, *lengths)] for place in longest.tolist())
        shown = _weights(view, *first)
        if not shown:
            return None
        entropies = _entropies(shown + [each for row in others for each in _weights(view, *row)])
        return Observation(
            {f"entropy_bits/{name[-80:]}": bits for name, bits in entropies.items()},
            {"maps": _picture(shown, entropies, view.data.kind == "image" and not view.data.per_step)},
        )


def _weights(view: View, x: Tensor, *lengths: Tensor) -> list[tuple[str, Tensor]]:
    """Return (layer, attention weights (heads, queries, keys)) of one row without its padding, in order of use."""
    with torch.no_grad(), _current_layers(view.module) as layers, _unfused_attention(), Products(layers) as products:
        view.module(x, *lengths)
    if not products.found:
        return []
    is_weights = torch.stack([_is_attention(each) for _, each in products.found]).tolist()
    found = [pair for pair, is_one in zip(products.found, is_weights, strict=True) if is_one]
    if not lengths or view.data.kind == "image":
        return found
    max_length, num_valid = view.data.max_length, int(lengths[0])
    ends = [[num_valid if size == max_length else size for size in each.shape[1:]] for _, each in found]
    return [(name, each[:, :rows, :columns]) for (name, each), (rows, columns) in zip(found, ends, strict=True)]


class Products(TorchDispatchMode):
    """Record both factors of each batched matrix product, oriented as attention weights over rows of the other.

    Args:
        layers: names of the layers being computed, innermost last.

    Attributes:
        found: (layer, factor) for each factor, in order of use.
    """

    def __init__(self, layers: list[str]) -> None:
        super().__init__()
        self.layers, self.found = layers, list[tuple[str, Tensor]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func in PRODUCTS:
            left, right = (args[place] for place in PRODUCTS[func])
            name = self.layers[-1] or "model"
            self.found += [(name, t.clone()) for t in (left, right.mT) if t.shape[-1] > 1]
        return func(*args, **(kwargs or {}))


def _is_attention(weights: Tensor) -> Tensor:
    """Return (), true where every row sums to 1 or is fully masked. One-hot rows alone are indexing, not attention."""
    sums, tolerance = weights.double().sum(-1), 1e-4 if weights.dtype.itemsize > 2 else 1e-2
    is_one, is_masked = (sums - 1).abs() < tolerance, (weights == 0).all(-1)
    is_mixed = ((weights > 0) & (weights < 1)).any()
    return (weights >= 0).all() & (is_one | is_masked).all() & is_mixed


@contextmanager
def _current_layers(module: nn.Module) -> Iterator[list[str]]:
    """Yield a list that holds the names of the layers being computed, innermost last."""
    names: list[str] = [""]

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: names.append(name)

    def leave(*_: Any) -> None:
        names.pop()

    handles = [each.register_forward_pre_hook(enter(name)) for name, each in module.named_modules()]
    handles += [each.register_forward_hook(leave) for each in module.modules()]
    try:
        yield names
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _unfused_attention() -> Iterator[None]:
    """Make torch compute attention in separate operations, which can be recorded."""
    is_fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fast)


def _entropies(found: list[tuple[str, Tensor]]) -> dict[str, float]:
    """Return the mean entropy of each layer in bits, without queries that are fully masked."""
    each = [torch.special.entr(weights.double()).sum(-1) / math.log(2) for _, weights in found]
    counts = [(weights > 0).any(-1).sum() for _, weights in found]
    sums = torch.stack([torch.stack([e.sum(), count]) for e, count in zip(each, counts, strict=True)]).tolist()
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (name, _), (bits, count) in zip(found, sums, strict=True):
        totals[name] = [totals[name][0] + bits, totals[name][1] + count]
    return {name: bits / count for name, (bits, count) in totals.items() if count}


def _picture(found: list[tuple[str, Tensor]], entropies: dict[str, float], is_image: bool) -> Picture:
    maps = [(name, weights[:MAX_HEADS, :MAX_POSITIONS, :MAX_POSITIONS]) for name, weights in found[:MAX_LAYERS]]
    counts = {
        "layers": [len(maps), len(found)],
        "heads": [max(len(w) for _, w in maps), max(len(w) for _, w in found)],
        "positions": [max(max(w.shape[1:]) for _, w in maps), max(max(w.shape[1:]) for _, w in found)],
    }
    cut = [f"first {few} of {whole} {what}" for what, (few, whole) in counts.items() if few < whole]
    numbers = {
        "unit": "patch" if is_image else "position",
        "counts": counts,
        "layers": [
            {"name": name, "entropy in bits": entropies.get(name), "weights": rounded(weights, 3)}
            for name, weights in maps
        ],
    }
    size = (2.0 + 1.3 * counts["heads"][0], 1.3 + 1.25 * len(maps))
    return Picture(", ".join(["Attention in one row", *cut]), numbers, _draw, (max(4.0, size[0]), size[1]))


def _draw(figure: Figure, numbers: dict[str, Any]) -> None:
    axes, layers = figure.subplots(), numbers["layers"]
    images = _pad([layer["weights"] for layer in layers])
    highest = max((v for row in images for image in row for line in image for v in line if v is not None), default=1.0)
    names = [f"{shortened(each['name'], 14)}\nentropy {each['entropy in bits'] or 0:.1f} bits" for each in layers]
    heads = [f"head {number + 1}" for number in range(numbers["counts"]["heads"][0])]
    image = mosaic(axes, images, limits=(0, highest or 1.0), row_names=names, column_names=heads)
    label(axes, f"attends to ({numbers['unit']}, from left to right)", f"{numbers['unit']}, from top to bottom")
    colour_bar(figure, image, "weight of attention", axes)


def _pad(images: list[Any]) -> list[Any]:
    """Pad smaller images with missing values on the right and at the bottom."""
    height = max(len(image) for row in images for image in row)
    width = max(len(image[0]) for row in images for image in row)
    return [
        [[[*line, *[None] * (width - len(line))] for line in [*image, *[[]] * (height - len(image))]] for image in row]
        for row in images
    ]
