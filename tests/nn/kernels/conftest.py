"""Both kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from nnexp.nn.kernels import unavailable_reason
from nnexp.nn.kernels.op import is_compiled, without_compiled_kernels


@pytest.fixture(params=["c++", "torch"])
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each kernel in turn."""
    if request.param == "torch":
        with without_compiled_kernels():
            assert not is_compiled(torch.device("cpu"))
            yield request.param
    elif is_compiled(torch.device("cpu")):
        yield request.param
    else:
        pytest.skip(unavailable_reason())
