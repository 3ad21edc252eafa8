"""Both kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from nnexp.nn.kernels import unavailable_reason
from nnexp.nn.kernels.build import library
from nnexp.nn.kernels.op import is_compiled


@pytest.fixture(params=["c++", "torch"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each kernel in turn."""
    if request.param == "torch":
        monkeypatch.setenv("NNEXP_COMPILER", "none")
        library.cache_clear()
    elif not is_compiled(torch.device("cpu")):
        pytest.skip(unavailable_reason())
    yield request.param
    if request.param == "torch":
        library.cache_clear()
