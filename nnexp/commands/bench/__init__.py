"""Measure what training costs here, beside bare loops, Lightning with its defaults, and a peer.

Everything runs in one thread. Ways that are compared are measured in turns, round by round; ratios are taken within a
round, and the table shows their median (smallest-largest).

The bare loop is plain PyTorch: no Lightning, no DataLoader, the fused optimiser, torch's own layers, loss and gradient
norm kept on the device, nothing evaluated and nothing written; imports excluded. Ours is timed from the first update
to the last sealed run directory, everything written, evaluated once at the end. A sweep of bare or Lightning loops
takes hours, and their cost per update is constant: fewer are timed and scaled, and the table says from how many.

A bar is what a ratio must reach for the claims of this project to hold. It is shown where a sweep has the 64 jobs that
it was set for; with fewer, or few updates, what a sweep costs once weighs more.
"""

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return its exit code."""
    from nnexp.commands.bench.command import run  # `point` is run as a module of its own, without all this

    return run(argv, __doc__ or "")
