"""What a key of a configuration may hold: types, choices, ranges."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

from nnexp.base import short_repr
from nnexp.registry.contracts import Range

# Words that YAML or Hydra read as something else than text.
WORDS = (
    {"null": None, "~": None}
    | dict.fromkeys(("true", "yes", "on"), True)
    | dict.fromkeys(("false", "no", "off"), False)
)


@dataclass(frozen=True)
class Option:
    """One type that a value may have: a scalar, one of some choices, or a list or tuple of options."""

    type: type
    choices: tuple[Any, ...] = ()
    range: Range | None = None
    items: tuple[Option, ...] = ()

    def accept(self, value: Any) -> Any:
        """The value in this type. Raises ValueError where it does not fit."""
        if self.choices:
            return self._choice(value)
        if self.items and isinstance(value, list | tuple):
            return self.type(first_fit(self.items, item) for item in value)
        if self.type is float and type(value) is int:
            value = _as_float(value)
        if type(value) is not self.type or self.items:
            raise ValueError
        if type(value) is int and not is_small(value):
            raise ValueError
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError
        if isinstance(value, int | float) and self.range is not None and value not in self.range:
            raise ValueError
        return value

    def _choice(self, value: Any) -> Any:
        for choice in self.choices:
            if type(choice) is type(value) and choice == value:
                return choice
        raise ValueError

    def __str__(self) -> str:
        if self.choices:
            return ", ".join(map(str, self.choices))
        if self.items:
            return f"a list of ({' or '.join(map(str, self.items))})"
        name = "null" if self.type is type(None) else self.type.__name__
        return f"{name} {self.range}" if self.range is not None else name


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError from None


def is_small(value: int) -> bool:
    """Whether an integer fits into the 64 bits that a tensor gives it."""
    return -(2**63) <= value < 2**63


def first_fit(options: tuple[Option, ...], value: Any) -> Any:
    for option in options:
        try:
            return option.accept(value)
        except ValueError:
            continue
    raise ValueError


def _is_read_as(text: str, value: Any) -> bool:
    """Whether a word that was typed as it stands has become this value, as `nan` and `true` do in YAML and in Hydra."""
    read: Any = WORDS.get(text.lower(), text)
    for number in (float, int):
        with contextlib.suppress(ValueError):
            read = number(text)
    return type(read) is type(value) and (read == value or (read != read and value != value))


@dataclass(frozen=True)
class Parameter:
    """One key of a plugin's configuration."""

    name: str
    options: tuple[Option, ...]
    default: Any
    per_lane: bool = False
    is_file: bool = False
    help: str = ""

    def check(self, value: Any) -> Any:
        """The value in the parameter's own type. Raises ValueError, with what is allowed, where it does not fit."""
        try:
            return first_fit(self.options, value)
        except ValueError:
            meant = self.mistaken_choices(value)
        if len(meant) == 1:
            return meant[0]
        large = " (an integer has at most 64 bits)" if isinstance(value, int) and not is_small(value) else ""
        raise ValueError(f"expected {self.allowed}, got {short_repr(value)}{large}")

    @property
    def text_choices(self) -> list[str]:
        return [choice for option in self.options for choice in option.choices if isinstance(choice, str)]

    def mistaken_choices(self, value: Any) -> list[str]:
        """The choices that become this value where they are typed without quotes."""
        return [] if isinstance(value, str) else [choice for choice in self.text_choices if _is_read_as(choice, value)]

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        texts = [f"one of {o}" if len(o.choices) > 1 else str(o) for o in self.options]
        return " or ".join(texts)
