"""Dispatch of the command line: to a verb, or without one to training. Errors are printed on one line."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from nnexp.base import ConfigError, NnexpError, open_streams, print_err, print_out, shorten, suggestion, visible
from nnexp.commands.arguments import parser
from nnexp.commands.help_text import help_text
from nnexp.registry import discover

SYNONYMS = {"list": "plugins", "ls": "plugins", "show": "plugins", "benchmark": "bench", "generate": "sample"}
VERB_START = re.compile(r"[A-Za-z]")  # ~KEY and +KEY are overrides, - starts a flag
TRAINING_WORDS = ("train", "fit", "run", "sweep")


def command_line(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        argv: the arguments; `sys.argv[1:]` where it is None.

    Returns:
        0, 1 for a run that did not finish, 2 for a command that is refused, 128 + signal.

    >>> command_line(["model=lstm", "trainer.max_steps=100"])
    0
    """
    open_streams()
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except NnexpError as error:
        print_err(str(error))
        return 2
    except OSError as error:
        print_err(f"{error.strerror or error}: {error.filename or ''}")
        return 1
    except KeyboardInterrupt:
        print_err("interrupted before training started.")
        return 130


def verbs() -> dict[str, str]:
    """Return the verbs with their descriptions: the modules of this folder that define `main`; none is imported."""
    descriptions = {}
    folder = Path(__file__).parent
    for path in sorted([*folder.glob("*.py"), *folder.glob("*/__init__.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            name = path.parent.name if path.stem == "__init__" else path.stem
            descriptions[name] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return descriptions


def _run(argv: list[str]) -> int:
    if argv and _is_bare_word(argv[0]):
        return _run_verb(argv[0], argv[1:])
    arguments = parser().parse_intermixed_args(argv)
    if arguments.version:
        print_out(f"nnexp {version('nnexp')}")
        return 0
    for word in filter(_is_bare_word, arguments.overrides):
        if word in verbs():
            raise ConfigError(f"{word}: a verb comes first: nnexp {word} ...")
    if arguments.help:
        print_out(visible(help_text(discover(), arguments.overrides, verbs())))
        return 0
    from nnexp.commands.train import train

    return train(arguments, discover(), argv)


def _is_bare_word(text: str) -> bool:
    """Return whether an argument can be a verb: no flag, and no override such as KEY=VALUE or ~KEY."""
    return VERB_START.match(text) is not None and "=" not in text


def _run_verb(name: str, argv: list[str]) -> int:
    available = verbs()
    if name in available:
        code: int = importlib.import_module(f"nnexp.commands.{name}").main(argv)
        return code
    if name in TRAINING_WORDS:
        raise ConfigError(f"{name}: the command without a verb trains. Leave the word out.")
    guess = f" Did you mean '{SYNONYMS[name]}'?" if name in SYNONYMS else suggestion(name, available)
    advice = f"Available: {', '.join(available)}. An override is KEY=VALUE"
    raise ConfigError(f"{shorten(name)}: there is no such verb.{guess} {advice}.")
