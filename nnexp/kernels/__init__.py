"""Layers over time for many lanes at once, in C++ where this machine has a compiler, else in operations of torch."""

from nnexp.kernels.op import is_compiled as is_compiled
from nnexp.kernels.op import only_plain as only_plain
from nnexp.kernels.op import recurrent as recurrent
