"""Text of errors: on one line, short, harmless to a terminal, and with the nearest known word."""

from __future__ import annotations

import pytest

from nnexp.base.did_you_mean import suggestion
from nnexp.base.message_text import short_repr, shorten


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two\nlines\tof  text", "two lines of text"),
        ("\x1b[31mred\x1b[0m and \x07 a bell", "?[31mred?[0m and ? a bell"),
        ("a\u202eb", "a?b"),  # turns the direction of writing
        ("x" * 201, "x" * 200 + "..."),
        ("x" * 200, "x" * 200),
    ],
)
def test_a_message_is_one_line_that_a_terminal_does_not_obey(text: str, expected: str) -> None:
    assert shorten(text) == expected


def test_a_value_that_python_refuses_to_write_has_a_text_all_the_same() -> None:
    nested: list[object] = []
    nested.append(nested)
    assert short_repr(10**5000) == "a value of type int that is too long to be shown"
    assert short_repr(nested) == "[[...]]"
    assert short_repr("a\x1b") == "'a\\x1b'"


def test_the_nearest_word_is_named_where_one_is_close() -> None:
    assert suggestion("hiden_size", ["hidden_size", "num_layers"]) == " Did you mean 'hidden_size'?"
    assert suggestion("zzz", ["hidden_size"]) == ""
