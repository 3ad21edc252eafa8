"""Names of run directories: lower-case slugs of what a job changes."""

from __future__ import annotations

import re


def slug(text: str) -> str:
    """Lower-case letters, digits and `._=-`, at most 64 characters."""
    return re.sub(r"[^a-z0-9._=]+", "-", text.lower()).strip("-.")[:64].strip("-.")


def label(parts: list[str]) -> str:
    """The parts that fit into a directory's name, each whole; `default` where there is none."""
    name = ""
    for part in map(slug, parts):
        if len(longer := f"{name}-{part}" if name else part) <= 64:
            name = longer
    return name or "default"
