"""Schema of configuration values: types, choices and ranges, with strict checks."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

from nnexp.base import short_repr
from nnexp.registry.contracts import Range

# Words that YAML or Hydra read as another type than text.
YAML_WORDS = (
    {"null": None, "~": None}
    | dict.fromkeys(("true", "yes", "on"), True)
    | dict.fromkeys(("false", "no", "off"), False)
)


@dataclass(frozen=True)
class Option:
    """One alternative of a parameter's type: a scalar, a set of choices, or a list or tuple of options.

    Args:
        type: the Python type.
        choices: the allowed values of a `Literal`, () where all are allowed.
        range: bounds of a number.
        items: the options of the elements of a list or tuple.
    """

    type: type
    choices: tuple[Any, ...] = ()
    range: Range | None = None
    items: tuple[Option, ...] = ()

    def accept(self, value: Any) -> Any:
        """Return the value converted to this type. Raises ValueError where it does not fit."""
        if self.choices:
            return self._find_choice(value)
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

    def _find_choice(self, value: Any) -> Any:
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
    """Return True where an integer fits into the 64 bits of a tensor's element."""
    return -(2**63) <= value < 2**63


def first_fit(options: tuple[Option, ...], value: Any) -> Any:
    """Return the value converted by the first option that accepts it. Raises ValueError where none does."""
    for option in options:
        try:
            return option.accept(value)
        except ValueError:
            continue
    raise ValueError


def _is_read_as(text: str, value: Any) -> bool:
    """Return True where YAML or Hydra reads the unquoted `text` as `value`, as they do with `nan` and `true`."""
    parsed: Any = YAML_WORDS.get(text.lower(), text)
    for number in (float, int):
        with contextlib.suppress(ValueError):
            parsed = number(text)
    return type(parsed) is type(value) and (parsed == value or (parsed != parsed and value != value))


@dataclass(frozen=True)
class Parameter:
    """One key of a plugin's configuration.

    Args:
        name: the key, without the plugin's kind.
        options: the alternatives of its type, tried in order.
        default: its default value.
        per_lane: True where it may differ between the lanes of a cohort.
        is_file: True where it names a file whose content counts.
        help: its description from the docstring.
    """

    name: str
    options: tuple[Option, ...]
    default: Any
    per_lane: bool = False
    is_file: bool = False
    help: str = ""

    def check(self, value: Any) -> Any:
        """Return the value converted to the parameter's type. Raises ValueError, with what is allowed.

        A choice that was typed without quotes and read as another type is accepted where it is the only candidate.
        """
        try:
            return first_fit(self.options, value)
        except ValueError:
            candidates = self.misread_choices(value)
        if len(candidates) == 1:
            return candidates[0]
        large = " (an integer has at most 64 bits)" if isinstance(value, int) and not is_small(value) else ""
        raise ValueError(f"expected {self.allowed}, got {short_repr(value)}{large}")

    @property
    def text_choices(self) -> list[str]:
        """All choices that are strings."""
        return [choice for option in self.options for choice in option.choices if isinstance(choice, str)]

    def misread_choices(self, value: Any) -> list[str]:
        """Return the choices that YAML or Hydra reads as `value` where they are typed without quotes."""
        return [] if isinstance(value, str) else [choice for choice in self.text_choices if _is_read_as(choice, value)]

    @property
    def allowed(self) -> str:
        """The allowed values, for messages and help."""
        texts = [f"one of {o}" if len(o.choices) > 1 else str(o) for o in self.options]
        return " or ".join(texts)
