from .init import initialise as initialise
from .kernels.attention import attention as attention
from .kernels.build import Unavailable as Unavailable
from .kernels.build import find_compiler as find_compiler
from .kernels.op import is_compiled as is_compiled
from .kernels.op import only_plain as only_plain
from .recurrent import Recurrent as Recurrent
