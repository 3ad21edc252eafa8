"""python -m nnexp"""

import sys

try:
    from nnexp.cli import main

    code = main()
except KeyboardInterrupt:  # Ctrl-C before anything was begun
    code = 130
sys.exit(code)
