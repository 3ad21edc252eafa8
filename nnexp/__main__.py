"""python -m nnexp"""

import sys

try:
    from nnexp.commands import command_line

    code = command_line()
except KeyboardInterrupt:  # Ctrl-C before anything was begun
    code = 130
sys.exit(code)
