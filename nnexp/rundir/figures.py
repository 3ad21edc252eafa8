"""figures/ of a run directory: observations of probes; an observation counts once its record is written, last.

<probe>-<step>.json              the record: scalars, texts, histograms, names of the pictures, fingerprint of the probe
<probe>-<picture>-<step>.png     a picture, also as .svg; .json holds the numbers it was drawn from
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
    from nnexp.registry import Observation
    from nnexp.rundir.probe_result import ProbeResult

FIGURES_FOLDER = "figures"
RECORD = re.compile(r"(\w+)-(\d{7,})\.json", re.ASCII)
ANY = re.compile(r"(\w+)-(?:[\w.]+-)?(\d{7,})\.(?:json|png|svg|pb)", re.ASCII)
MAX_NAME_LENGTH = 100
MAX_FILE_BYTES = 1 << 26
ObservationRecord = dict[str, Any]


class Figures:
    """Reader and writer of the figures of one run.

        figures = Figures(run.path)
        for record in figures.records():
            print(record["probe"], record["step"], record.get("scalars"))

    Args:
        run: path of the run directory.
    """

    def __init__(self, run: Path) -> None:
        self.folder = run / FIGURES_FOLDER

    def save(self, result: ProbeResult, made_by: str) -> ObservationRecord:
        """Write the files of an observation, then its record, and return the record.

        Args:
            result: the observation or error of a probe at a step.
            made_by: fingerprint of the probe's code and values.

        Raises:
            NnexpError: an invalid name, two pictures with one file name, or a figures folder that is a link.
            OSError: a file cannot be written.
        """
        probe, step, observation = result.choice.name, result.step, None if result.error else result.observation
        record: ObservationRecord = {"probe": probe, "step": step, "fits": observation is not None}
        record |= {"told": result.message(), "failed": result.error is not None, "is_drawn": result.is_drawn}
        record |= {"values": result.choice.values, "made_by": made_by}
        if self.folder.is_symlink():
            raise NnexpError(f"{self.folder} is a symbolic link and may lead to files of another program. Remove it.")
        self.folder.mkdir(exist_ok=True)
        if observation is not None:
            record |= _content_of(observation)
            record["pictures"] = {name: _stem(probe, _checked(name), step) for name in result.drawn}
            if len(set(record["pictures"].values())) < len(record["pictures"]):
                raise NnexpError(f"two pictures of probe '{probe}' have the same file name. Rename one.")
            for name, contents in result.drawn.items():
                self._save_picture(record["pictures"][name], result, name, contents)
            if observation.graph is not None:
                write_atomically(self.folder / f"{_stem(probe, '', step)}.pb", observation.graph)
        write_atomically(self.folder / f"{_stem(probe, '', step)}.json", _json(record))
        return record

    def _save_picture(self, stem: str, result: ProbeResult, name: str, contents: dict[str, bytes]) -> None:
        assert result.observation is not None
        about = {"probe": result.choice.name, "picture": name, "step": result.step}
        about["title"] = result.observation.pictures[name].title
        write_atomically(self.folder / f"{stem}.json", _json(about | {"numbers": result.numbers[name]}))
        for ending, content in contents.items():
            write_atomically(self.folder / f"{stem}.{ending}", content)

    def records(self) -> Iterator[ObservationRecord]:
        """Yield the valid records in order of their step; damaged or foreign files are skipped."""
        names = sorted((int(match[2]), name) for name in self._names() if (match := RECORD.fullmatch(name)))
        for _, name in names:
            record = self._read(name)
            if record is not None:
                yield record

    def content(self, stem: str, ending: str) -> bytes | None:
        """Return the content of a file that belongs to a record, or None where there is none.

        Args:
            stem: its name, a value of `record["pictures"]`.
            ending: "png", "svg", "json" or "pb".
        """
        return self._content(f"{stem}.{ending}") if re.fullmatch(r"[\w.-]+", stem) else None

    def graph(self, record: ObservationRecord) -> bytes | None:
        """Return the serialised graph of a record, or None."""
        return self.content(_stem_of(record), "pb")

    def remove_after(self, step: int) -> None:
        """Delete all observations of later steps, as a resume from a checkpoint of this step needs."""
        self._remove(lambda _, at: at > step)

    def remove_stale(self, made_by: Mapping[str, str]) -> None:
        """Delete observations that the given probes made with other values or other code.

        Args:
            made_by: the present fingerprint of each probe, by name; observations of other probes stay.
        """
        present = [(record["probe"], record["step"], record.get("made_by")) for record in self.records()]
        stale = {(probe, step) for probe, step, by in present if by != made_by.get(probe, by)}
        self._remove(lambda probe, step: (probe, step) in stale)

    def _remove(self, is_meant: Callable[[str, int], bool]) -> None:
        for name in self._names():
            match = ANY.fullmatch(name)
            if re.fullmatch(TEMPORARY, name) or (match and is_meant(match[1], int(match[2]))):
                with contextlib.suppress(OSError):  # a directory with such a name is not ours
                    (self.folder / name).unlink()

    def _names(self) -> Iterable[str]:
        try:
            return [] if self.folder.is_symlink() else [path.name for path in self.folder.iterdir()]
        except OSError:
            return []

    def _content(self, name: str) -> bytes | None:
        """Read a regular file of bounded size; never a link or a device."""
        if self.folder.is_symlink():
            return None
        with contextlib.suppress(OSError):
            flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
            with os.fdopen(os.open(self.folder / name, flags), "rb") as file:
                facts = os.fstat(file.fileno())
                return file.read() if stat.S_ISREG(facts.st_mode) and facts.st_size <= MAX_FILE_BYTES else None
        return None

    def _read(self, name: str) -> ObservationRecord | None:
        try:
            record = json.loads(self._content(name) or b"")
        except (ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) and _is_valid(record) and _stem_of(record) == name[:-5] else None


def _content_of(observation: Observation) -> ObservationRecord:
    return {
        "scalars": {_checked(name): _finite(value) for name, value in observation.scalars.items()},
        "texts": {_checked(name): str(text) for name, text in observation.texts.items()},
        "histograms": {_checked(name): [*map(list, rows)] for name, rows in observation.histograms.items()},
    }


def _is_valid(record: ObservationRecord) -> bool:
    """Check the type of every field that is read of a record."""
    checks = {"scalars": _is_number, "texts": _is_text, "pictures": _is_text, "histograms": _is_histogram}
    fields = [record.get(name, {}) for name in checks]
    return (
        _is_text(record.get("probe"))
        and _is_text(record.get("told", ""))
        and type(record.get("step")) is int
        and isinstance(record.get("fits"), bool)
        and all(isinstance(field, dict) for field in fields)
        and all(is_valid(v) for field, is_valid in zip(fields, checks.values(), strict=True) for v in field.values())
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
    """Return a name for a tag: unprintable characters replaced, and only the end of a long name, which differs most."""
    if not isinstance(name, str) or not name:
        raise NnexpError(f"{short_repr(name)} is no name: a name must be a non-empty string.")
    return "".join(letter if letter.isprintable() else "?" for letter in name)[-MAX_NAME_LENGTH:]


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False).encode()
