"""Freed memory: kept within the block, given back after it, and no more of it however often it is used."""

import resource

import pytest
import torch

from nnexp.memory import GLIBC, freed_memory_kept

MEGABYTE = 2**20
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
    assert kept > before + 150
    assert _resident() < before + 40


@needs_glibc
def test_what_is_kept_is_used_again():
    with freed_memory_kept():
        _use()
        kept, faults = _resident(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for count in (1, 4, 2, 3) * 5:
            _use(count)
        assert _resident() < kept + 10
        assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults < 1000  # 40 MB are 10,000 pages


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


@needs_glibc
def test_without_glibc_nothing_is_kept():
    before = _resident()
    with freed_memory_kept(None):
        _use()
        assert _resident() < before + 40
