"""The known word nearest to a misspelt one, as messages suggest it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(word: str, candidates: Iterable[str]) -> str:
    """Return the suggestion for a misspelt word, with a leading space, or "" where no candidate is close.

    >>> suggestion("lstmm", ["lstm", "gru"])
    " Did you mean 'lstm'?"
    """
    matches = difflib.get_close_matches(word[:100], sorted(candidates), n=1, cutoff=0.6)
    return f" Did you mean '{matches[0]}'?" if matches else ""
