"""Where a model looks: the weights of attention (Bahdanau, Cho & Bengio, 2015, arXiv:1409.0473; with heads, Vaswani et
al., 2017, arXiv:1706.03762) and how spread they are.

    A = softmax(q k^T / sqrt(d)),  mean entropy of a layer = mean over heads and queries of -sum_j A_ij log2 A_ij  bits

Departs from the papers in knowing no model: attention is any product of matrices, as torch computes it below all its
modules, of which one has rows that are not negative and sum to 1. So it is found in torch's own modules and functions
as in a model that writes it out, but not where weights and values meet in no product of matrices. 0 bits look at one
place alone, log2 n bits at n places alike. The means are over the longest of the first validation rows.
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
MOST_LAYERS, MOST_HEADS, MOST_POSITIONS = 4, 4, 40
PRODUCTS = {torch.ops.aten.bmm.default: (0, 1), torch.ops.aten.baddbmm.default: (1, 2)}  # and where their factors stand


@probe
@dataclass(kw_only=True)
class Attention(Probe):
    """Which positions each head of each attention layer looks at, and how widely."""

    def __call__(self, view: View) -> Observation | None:
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
    """The attention weights (heads, queries, keys) of one row in order of use, without its padding, by layer."""
    with torch.no_grad(), _inside(view.module) as layers, _written_out(), Products(layers) as products:
        view.module(x, *lengths)
    if not products.found:
        return []
    is_weights = torch.stack([_is_attention(each) for _, each in products.found]).tolist()
    found = [pair for pair, is_one in zip(products.found, is_weights, strict=True) if is_one]
    if not lengths or view.data.kind == "image":
        return found
    most, valid = view.data.max_length, int(lengths[0])
    ends = [[valid if size == most else size for size in each.shape[1:]] for _, each in found]
    return [(name, each[:, :rows, :columns]) for (name, each), (rows, columns) in zip(found, ends, strict=True)]


class Products(TorchDispatchMode):
    """Notes both factors of each product of batches of matrices, as if each were to weight rows of the other.

    Args:
        layers: the names of the layers that are being computed, the innermost last.
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
    """(): whether each row sums to 1, or is masked as a whole; zeros and ones alone are a choice made before."""
    sums, tolerance = weights.double().sum(-1), 1e-4 if weights.dtype.itemsize > 2 else 1e-2
    is_one, is_masked = (sums - 1).abs() < tolerance, (weights == 0).all(-1)
    is_mixed = ((weights > 0) & (weights < 1)).any()
    return (weights >= 0).all() & (is_one | is_masked).all() & is_mixed


@contextmanager
def _inside(module: nn.Module) -> Iterator[list[str]]:
    """The names of the layers that are being computed, the innermost last."""
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
def _written_out() -> Iterator[None]:
    """Torch's attention computed in operations that can be watched, not in one."""
    is_fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fast)


def _entropies(found: list[tuple[str, Tensor]]) -> dict[str, float]:
    """The mean entropy of each layer in bits; queries that may look nowhere do not count."""
    each = [torch.special.entr(weights.double()).sum(-1) / math.log(2) for _, weights in found]
    counts = [(weights > 0).any(-1).sum() for _, weights in found]
    sums = torch.stack([torch.stack([e.sum(), count]) for e, count in zip(each, counts, strict=True)]).tolist()
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (name, _), (bits, count) in zip(found, sums, strict=True):
        totals[name] = [totals[name][0] + bits, totals[name][1] + count]
    return {name: bits / count for name, (bits, count) in totals.items() if count}


def _picture(found: list[tuple[str, Tensor]], entropies: dict[str, float], is_image: bool) -> Picture:
    maps = [(name, weights[:MOST_HEADS, :MOST_POSITIONS, :MOST_POSITIONS]) for name, weights in found[:MOST_LAYERS]]
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
    images = _same_size([layer["weights"] for layer in layers])
    highest = max((v for row in images for image in row for line in image for v in line if v is not None), default=1.0)
    names = [f"{shortened(each['name'], 14)}\nentropy {each['entropy in bits'] or 0:.1f} bits" for each in layers]
    heads = [f"head {number + 1}" for number in range(numbers["counts"]["heads"][0])]
    image = mosaic(axes, images, limits=(0, highest or 1.0), row_names=names, column_names=heads)
    label(axes, f"attends to ({numbers['unit']}, from left to right)", f"{numbers['unit']}, from top to bottom")
    colour_bar(figure, image, "weight of attention", axes)


def _same_size(images: list[Any]) -> list[Any]:
    """Missing numbers to the right of and below those that are smaller."""
    height = max(len(image) for row in images for image in row)
    width = max(len(image[0]) for row in images for image in row)
    return [
        [[[*line, *[None] * (width - len(line))] for line in [*image, *[[]] * (height - len(image))]] for image in row]
        for row in images
    ]
