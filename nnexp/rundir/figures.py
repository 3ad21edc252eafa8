"""figures/ of a run directory: what its probes saw, each look complete from the moment its record is there.

<probe>-<step>.json              the record: scalars, texts, histograms, names of the pictures, who made it
<probe>-<picture>-<step>.png     a picture, and the same as .svg; .json holds the numbers behind it
<probe>-<step>.pb                a graph
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnexp.base import TEMPORARY, NnexpError, short_repr, write_atomically

if TYPE_CHECKING:
    from nnexp.rundir.probe_result import ProbeResult

FOLDER = "figures"
RECORD = re.compile(r"(\w+)-(\d{7,})\.json", re.ASCII)
ANY = re.compile(r"(\w+)-(?:[\w.]+-)?(\d{7,})\.(?:json|png|svg|pb)", re.ASCII)
LONGEST_NAME = 100
LARGEST = 1 << 26  # bytes of a file
ObservationRecord = dict[str, Any]


class Figures:
    """The figures of one run."""

    def __init__(self, run: Path) -> None:
        self.folder = run / FOLDER

    def save(self, sight: ProbeResult, made_by: str) -> ObservationRecord:
        """Write what a probe saw; gives the record of it. Raises NnexpError where a name cannot stand in a path."""
        probe, step, seen = sight.choice.name, sight.step, None if sight.error else sight.seen
        record: ObservationRecord = {"probe": probe, "step": step, "fits": seen is not None, "told": sight.told()}
        record |= {"failed": sight.error is not None, "is_drawn": sight.is_drawn}
        record |= {"values": sight.choice.values, "made_by": made_by}
        if self.folder.is_symlink():
            raise NnexpError(f"{self.folder} is a link, and what it leads to may be another's. Remove it.")
        self.folder.mkdir(exist_ok=True)
        if seen is not None:
            record["scalars"] = {_checked(name): _finite(value) for name, value in seen.scalars.items()}
            record["texts"] = {_checked(name): str(text) for name, text in seen.texts.items()}
            record["histograms"] = {_checked(name): [*map(list, rows)] for name, rows in seen.histograms.items()}
            record["pictures"] = {name: _stem(probe, _checked(name), step) for name in sight.drawn}
            if len(set(record["pictures"].values())) < len(record["pictures"]):
                raise NnexpError(f"two pictures of probe '{probe}' have the same name in a path. Rename one.")
            for name, contents in sight.drawn.items():
                self._save_picture(record["pictures"][name], sight, name, contents)
            if seen.graph is not None:
                write_atomically(self.folder / f"{_stem(probe, '', step)}.pb", seen.graph)
        write_atomically(self.folder / f"{_stem(probe, '', step)}.json", _json(record))
        return record

    def _save_picture(self, stem: str, sight: ProbeResult, name: str, contents: dict[str, bytes]) -> None:
        assert sight.seen is not None
        about = {"probe": sight.choice.name, "picture": name, "step": sight.step}
        about["title"] = sight.seen.pictures[name].title
        write_atomically(self.folder / f"{stem}.json", _json(about | {"numbers": sight.numbers[name]}))
        for ending, content in contents.items():
            write_atomically(self.folder / f"{stem}.{ending}", content)

    def records(self) -> Iterator[ObservationRecord]:
        """The records that are whole, by step."""
        names = sorted((int(match[2]), name) for name in self._names() if (match := RECORD.fullmatch(name)))
        for _, name in names:
            record = self._read(name)
            if record is not None:
                yield record

    def content(self, stem: str, ending: str) -> bytes | None:
        """A file that belongs to a record, if it is there."""
        return self._content(f"{stem}.{ending}") if re.fullmatch(r"[\w.-]+", stem) else None

    def graph(self, record: ObservationRecord) -> bytes | None:
        """The graph that a record came with, if there is one."""
        return self.content(_stem_of(record), "pb")

    def cut(self, step: int) -> None:
        """Forget what was seen after a step."""
        self._forget(lambda _, at: at > step)

    def forget_others(self, made_by: Mapping[str, str]) -> None:
        """Forget all that these probes saw with other values or other code than now, lest they be mixed."""
        known = [(record["probe"], record["step"], record.get("made_by")) for record in self.records()]
        others = {(probe, step) for probe, step, by in known if by != made_by.get(probe, by)}
        self._forget(lambda probe, step: (probe, step) in others)

    def _forget(self, is_meant: Callable[[str, int], bool]) -> None:
        for name in self._names():
            match = ANY.fullmatch(name)
            if re.fullmatch(TEMPORARY, name) or (match and is_meant(match[1], int(match[2]))):
                with contextlib.suppress(OSError):  # a folder of such a name is not ours
                    (self.folder / name).unlink()

    def _names(self) -> Iterable[str]:
        try:
            return [] if self.folder.is_symlink() else [path.name for path in self.folder.iterdir()]
        except OSError:
            return []

    def _content(self, name: str) -> bytes | None:
        """A file of ours: no link, no device, and not larger than any that we write."""
        if self.folder.is_symlink():
            return None
        with contextlib.suppress(OSError):
            flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
            with os.fdopen(os.open(self.folder / name, flags), "rb") as file:
                facts = os.fstat(file.fileno())
                return file.read() if stat.S_ISREG(facts.st_mode) and facts.st_size <= LARGEST else None
        return None

    def _read(self, name: str) -> ObservationRecord | None:
        try:
            record = json.loads(self._content(name) or b"")
        except (ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) and _is_sound(record) and _stem_of(record) == name[:-5] else None


def _is_sound(record: ObservationRecord) -> bool:
    """Whether all that is read of a record is what `save` writes."""
    parts = {"scalars": _is_number, "texts": _is_text, "pictures": _is_text, "histograms": _is_histogram}
    told = record.get("told", "")
    found = [record.get(part, {}) for part in parts]
    return (
        _is_text(record.get("probe"))
        and _is_text(told)
        and type(record.get("step")) is int
        and isinstance(record.get("fits"), bool)
        and all(isinstance(part, dict) for part in found)
        and all(is_sound(v) for part, is_sound in zip(found, parts.values(), strict=True) for v in part.values())
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, float) or (type(value) is int and abs(value) < 1 << 63)


def _is_histogram(value: Any) -> bool:
    rows = value if isinstance(value, list) else [None]
    return all(
        isinstance(row, list) and len(row) == 3 and all(_is_number(v) and v is not None for v in row) for row in rows
    )


def _stem_of(record: ObservationRecord) -> str:
    return _stem(record["probe"], "", record["step"])


def _stem(probe: str, picture: str, step: int) -> str:
    return "-".join(filter(None, (probe, re.sub(r"[^A-Za-z0-9_.]", "_", picture), f"{step:07d}")))


def _checked(name: str) -> str:
    """Layers may have any names, which go into tags as they are, the end of those that are long."""
    if not isinstance(name, str) or not name:
        raise NnexpError(f"{short_repr(name)} is no name: a name is text, and not empty.")
    return "".join(letter if letter.isprintable() else "?" for letter in name)[-LONGEST_NAME:]


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False).encode()
