"""What many lanes do at once in one operation: in C++ where there is a compiler, else in operations of torch."""

from nnexp.nn.kernels.attention import attention as attention
from nnexp.nn.kernels.build import library
from nnexp.nn.kernels.op import is_compiled as is_compiled
from nnexp.nn.kernels.op import only_plain as only_plain
from nnexp.nn.kernels.op import recurrent as recurrent


def why_not() -> str:
    """Why there is no C++ kernel on this machine, or nothing. The first call compiles it, in a few seconds."""
    return library()[1]
