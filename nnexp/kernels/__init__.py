"""Layers over time for many lanes at once, in C++ where this machine has a compiler, else in operations of torch."""

from nnexp.kernels.op import recurrent as recurrent
