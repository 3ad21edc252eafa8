"""Layers over time for many lanes at once: in C++ where this machine has a compiler, else in operations of torch."""

from __future__ import annotations

from nnexp.kernels.build import library
from nnexp.kernels.op import is_compiled as is_compiled
from nnexp.kernels.op import only_plain as only_plain
from nnexp.kernels.op import recurrent as recurrent


def has_compiler() -> bool:
    """Whether the C++ kernels are there. They are compiled by the first call, in a few seconds."""
    return library()[0] is not None


def why_not() -> str:
    """Why they are not, or nothing."""
    return library()[1]
