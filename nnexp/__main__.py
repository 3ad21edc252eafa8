"""Entry point of `python -m nnexp`."""

import sys

try:
    from nnexp.commands import command_line

    code = command_line()
except KeyboardInterrupt:  # Ctrl-C while the command line is imported
    code = 130
sys.exit(code)
