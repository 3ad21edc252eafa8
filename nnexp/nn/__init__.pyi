from .init import initialise as initialise
from .kernels.attention import attention as attention
from .kernels.build import KernelsUnavailable as KernelsUnavailable
from .kernels.build import find_compiler as find_compiler
from .kernels.op import is_compiled as is_compiled
from .kernels.op import without_compiled_kernels as without_compiled_kernels
from .recurrent import Recurrent as Recurrent
