"""Names of run directories: lower-case slugs of the values that a job changes."""

from __future__ import annotations

import re


def slug(text: str) -> str:
    """Return `text` reduced to lower-case letters, digits and `._=-`, at most 64 characters.

    >>> slug("Hidden Size=8")
    'hidden-size=8'
    """
    return re.sub(r"[^a-z0-9._=]+", "-", text.lower()).strip("-.")[:64].strip("-.")


def label(parts: list[str]) -> str:
    """Join as many parts as fit into 64 characters, skipping those that do not; `default` where there is none.

    >>> label(["lr=0.5", "seed=2"])
    'lr=0.5-seed=2'
    """
    name = ""
    for part in map(slug, parts):
        if len(longer := f"{name}-{part}" if name else part) <= 64:
            name = longer
    return name or "default"
