"""Freed memory: kept within the block, given back after it, and no more of it however often it is used.

Measured in processes of their own: what tests before these left in the heap decides where an array is put.
"""

import subprocess
import sys

import pytest

from nnexp.base.malloc import GLIBC

needs_glibc = pytest.mark.skipif(GLIBC is None, reason="no glibc here: nothing is kept")

SHARED = """
import resource
import sys
from nnexp.base.malloc import GLIBC, keep_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1_000_000

def use(count=4):
    # Several arrays at once, of 40 MB each, larger than any that glibc would keep of itself.
    arrays = [b"1" * 40_000_000 for _ in range(count)]

before = resident()
"""


def _measured(script: str, *arguments: str) -> list[int]:
    """The numbers that a process of its own prints, in MB unless said otherwise."""
    command = [sys.executable, "-c", SHARED + script, *arguments]
    return [int(word) for word in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]


@needs_glibc
def test_what_is_freed_stays_within_the_block_and_goes_back_after_it():
    without, kept, after = _measured("""
use()
print(resident() - before)
with keep_freed_memory():
    use()
    print(resident() - before)
print(resident() - before)
""")
    assert without < 20
    assert kept > 140
    assert after < 20


@needs_glibc
def test_what_is_kept_is_used_again():
    kept, faults = _measured("""
pattern = (1, 4, 2, 3) * 10
with keep_freed_memory():
    for count in pattern:
        use(count)
    kept, faults = resident(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for count in pattern:
        use(count)
    print(resident() - kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)
""")
    assert kept < 100  # an array may once more not fit where another was
    assert faults < 50_000  # of 1,000,000 pages


@needs_glibc
def test_memory_goes_back_after_an_error_too():
    (after,) = _measured("""
try:
    with keep_freed_memory():
        use()
        raise ValueError("mine")
except ValueError:
    print(resident() - before)
""")
    assert after < 20


@needs_glibc
@pytest.mark.parametrize("library", ["kept", "none"])
def test_without_glibc_nothing_is_kept(library):
    (kept,) = _measured(
        """
with keep_freed_memory(GLIBC if sys.argv[1] == "kept" else None):
    use()
    print(resident() - before)
""",
        library,
    )
    assert (kept > 120) == (library == "kept")
