"""Measure training speed against bare PyTorch loops, Lightning with its defaults, and another tool.

Everything runs in one thread. The methods compared alternate, round by round; ratios are taken within a round, and the
table shows their median (minimum-maximum).

The bare loop is plain PyTorch: no Lightning, no DataLoader, the fused optimiser, torch's own layers, loss and gradient
norm kept on the device, no evaluation, nothing written, imports excluded. Ours is timed from the first update to the
last sealed run directory, with everything written and one evaluation at the end. A sweep of bare or Lightning loops
takes hours, but their cost per update is constant: fewer are timed and scaled up, and the table says from how many.

A bar is the ratio that this project claims. It is shown for sweeps of 64 jobs only, for which it was set: with fewer
jobs or few updates, the fixed costs of a sweep weigh more.
"""

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return its exit code."""
    from nnexp.commands.bench.command import run  # lazy: `point` runs as a process that must not import all this

    return run(argv, __doc__ or "")
