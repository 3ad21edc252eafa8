"""python -m nnexp"""

import sys

from nnexp.cli import main

sys.exit(main())
