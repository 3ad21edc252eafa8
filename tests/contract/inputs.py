"""Tensors of each kind of data, small enough to read."""

import torch

from nnexp.data.data_spec import DataSpec

SPECS = {
    "vector": DataSpec(kind="vector", shape=(5,)),
    "sequence": DataSpec(kind="sequence", shape=(4, 3)),
    "tokens": DataSpec(kind="tokens", shape=(6,), vocab=7),
    "image": DataSpec(kind="image", shape=(3, 4, 5)),
}


def inputs(data: DataSpec) -> torch.Tensor:
    return torch.randint(data.vocab, (2, *data.shape)) if data.kind == "tokens" else torch.randn(2, *data.shape)
