"""Kernels that compute many lanes in one operation: in C++ if there is a compiler, else in torch operations."""

from nnexp.nn.kernels.attention import attention as attention
from nnexp.nn.kernels.build import library
from nnexp.nn.kernels.op import is_compiled as is_compiled
from nnexp.nn.kernels.op import recurrent as recurrent
from nnexp.nn.kernels.op import without_compiled_kernels as without_compiled_kernels


def unavailable_reason() -> str:
    """Return why there are no C++ kernels on this machine, or "". The first call compiles them, in a few seconds."""
    return library()[1]
