"""figures/ of a run directory: what its probes saw, each look complete from the moment its record is there.

<probe>-<step>.json              the record: scalars, texts, histograms, names of the pictures, who made it
<probe>-<picture>-<step>.png     a picture, and the same as .svg; .json holds the numbers behind it
<probe>-<step>.pb                a graph
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnexp.errors import NnexpError, brief
from nnexp.files import read_plain, write_atomically

if TYPE_CHECKING:
    from nnexp.probing import Sight

FOLDER = "figures"
RECORD = re.compile(r"(\w+)-(\d{7,})\.json", re.ASCII)
ANY = re.compile(r"(\w+)-(?:[\w.]+-)?(\d{7,})\.(?:json|png|svg|pb)", re.ASCII)
LONGEST_NAME = 100
Record = dict[str, Any]


class Figures:
    """The figures of one run."""

    def __init__(self, run: Path) -> None:
        self.folder = run / FOLDER

    def save(self, sight: Sight, made_by: str) -> Record:
        """Write what a probe saw; gives the record of it. Raises NnexpError where a name cannot stand in a path."""
        probe, step, seen = sight.choice.name, sight.step, sight.seen
        record: Record = {"probe": probe, "step": step, "fits": seen is not None}
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

    def _save_picture(self, stem: str, sight: Sight, name: str, contents: dict[str, bytes]) -> None:
        assert sight.seen is not None
        about = {"probe": sight.choice.name, "picture": name, "step": sight.step}
        about["title"] = sight.seen.pictures[name].title
        write_atomically(self.folder / f"{stem}.json", _json(about | {"numbers": sight.numbers[name]}))
        for ending, content in contents.items():
            write_atomically(self.folder / f"{stem}.{ending}", content)

    def records(self) -> Iterator[Record]:
        """The records that are whole, by step."""
        names = sorted((match[2], name) for name in self._names() if (match := RECORD.fullmatch(name)))
        for _, name in names:
            record = self._read(name)
            if record is not None:
                yield record

    def content(self, stem: str, ending: str) -> bytes | None:
        """A file that belongs to a record, if it is there."""
        if re.fullmatch(r"[\w.-]+", stem):
            try:
                return read_plain(self.folder / f"{stem}.{ending}")
            except OSError:
                pass
        return None

    def graph(self, record: Record) -> bytes | None:
        """The graph that a record came with, if there is one."""
        return self.content(_stem_of(record), "pb")

    def is_there(self, probe: str, step: int, made_by: str) -> bool:
        """Whether a probe has looked at this step, or has found that it does not fit."""
        for name in {f"{_stem(probe, '', at)}.json" for at in (0, step)}:
            record = self._read(name)
            if record and record.get("made_by") == made_by and (record["step"] == step or not record["fits"]):
                return True
        return False

    def cut(self, step: int) -> None:
        """Forget what was seen after a step."""
        self._forget(lambda _, at: at > step)

    def forget_others(self, probe: str, made_by: str) -> None:
        """Forget all that a probe saw with other values or other code than now, lest they be mixed."""
        others = {
            record["step"] for record in self.records() if record["probe"] == probe and record.get("made_by") != made_by
        }
        self._forget(lambda name, at: name == probe and at in others)

    def _forget(self, is_meant: Callable[[str, int], bool]) -> None:
        for name in self._names():
            match = ANY.fullmatch(name)
            if match and is_meant(match[1], int(match[2])):
                (self.folder / name).unlink(missing_ok=True)

    def _names(self) -> Iterable[str]:
        try:
            return [path.name for path in self.folder.iterdir()]
        except OSError:
            return []

    def _read(self, name: str) -> Record | None:
        try:
            record = json.loads(read_plain(self.folder / name))
        except (OSError, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) and _is_sound(record) and _stem_of(record) == name[:-5] else None


def _is_sound(record: Record) -> bool:
    """Whether all that is read of a record is what `save` writes."""
    parts = {"scalars": _is_number, "texts": _is_text, "pictures": _is_text, "histograms": _is_histogram}
    found = [record.get(part, {}) for part in parts]
    return (
        _is_text(record.get("probe"))
        and type(record.get("step")) is int
        and isinstance(record.get("fits"), bool)
        and all(isinstance(part, dict) for part in found)
        and all(is_sound(v) for part, is_sound in zip(found, parts.values(), strict=True) for v in part.values())
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, float) or type(value) is int


def _is_histogram(value: Any) -> bool:
    rows = value if isinstance(value, list) else [None]
    return all(isinstance(row, list) and len(row) == 3 and all(type(v) in (int, float) for v in row) for row in rows)


def _stem_of(record: Record) -> str:
    return _stem(record["probe"], "", record["step"])


def _stem(probe: str, picture: str, step: int) -> str:
    return "-".join(filter(None, (probe, re.sub(r"[^A-Za-z0-9_.]", "_", picture), f"{step:07d}")))


def _checked(name: str) -> str:
    """Layers may have any names, which go into tags as they are."""
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
        raise NnexpError(f"{brief(name)} is no name: 1 to {LONGEST_NAME} letters that can be printed.")
    return name


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False).encode()
