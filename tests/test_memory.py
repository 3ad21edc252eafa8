"""Freed memory: kept within the block, given back after it, and no more of it however often it is used."""

import resource
import subprocess
import sys

import pytest
import torch

from nnexp.memory import GLIBC, freed_memory_kept

MEGABYTE = 2**20
PATTERN = (1, 4, 2, 3) * 10
needs_glibc = pytest.mark.skipif(GLIBC is None, reason="no glibc here: nothing is kept")


def _resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / MEGABYTE


def _use(count: int = 4) -> None:
    """Several arrays at once, of 40 MB each, larger than any that glibc would keep of itself."""
    arrays = [torch.zeros(10 * MEGABYTE) for _ in range(count)]
    assert all(array.count_nonzero() == 0 for array in arrays)


@needs_glibc
def test_what_is_freed_stays_within_the_block_and_goes_back_after_it():
    before = _resident()
    _use()
    assert _resident() < before + 40
    with freed_memory_kept():
        _use()
        kept = _resident()
    assert kept > before + 100  # 160, less what was free already
    assert _resident() < before + 40


@needs_glibc
def test_what_is_kept_is_used_again():
    with freed_memory_kept():
        for count in PATTERN:
            _use(count)
        kept, faults = _resident(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for count in PATTERN:
            _use(count)
        assert _resident() < kept + 100  # an array may once more not fit where another was
        assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults < 50_000  # of 1,000,000 pages


@needs_glibc
def test_memory_goes_back_after_an_error_too():
    before = _resident()

    def fail() -> None:
        with freed_memory_kept():
            _use()
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail()
    assert _resident() < before + 40


FRESH = """
import sys
from nnexp.memory import GLIBC, freed_memory_kept
def resident():
    return int(open("/proc/self/statm").read().split()[1])
before = resident()
with freed_memory_kept(GLIBC if sys.argv[1] == "kept" else None):
    del (arrays := [b"1" * 40_000_000 for _ in range(4)])[:]
    print(resident() - before)
"""


@needs_glibc
@pytest.mark.parametrize("library", ["kept", "none"])
def test_without_glibc_nothing_is_kept(library):
    """In a process of its own, whose thresholds nothing has changed yet."""
    done = subprocess.run([sys.executable, "-c", FRESH, library], capture_output=True, text=True, check=True)
    pages = 40_000_000 // resource.getpagesize()
    assert (int(done.stdout) > 3 * pages) == (library == "kept")
