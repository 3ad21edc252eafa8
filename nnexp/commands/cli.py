"""The command line: a verb, or without one, a command that trains. Errors are one line each."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from nnexp.base import ConfigError, NnexpError, did_you_mean, open_streams, print_err, print_out
from nnexp.commands.arguments import parser
from nnexp.commands.help_text import help_text
from nnexp.registry import discover

MEANT = {"list": "plugins", "ls": "plugins", "show": "plugins", "benchmark": "bench", "generate": "sample"}
WORD = re.compile(r"[A-Za-z]")  # how a verb begins; ~KEY and +KEY are overrides, - a flag
TRAINS = ("train", "fit", "run", "sweep")


def command_line(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0, 1 for a failed run, 2 for a bad command, 128 + signal."""
    open_streams()
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(given)
    except NnexpError as error:
        print_err(str(error))
        return 2
    except OSError as error:
        print_err(f"{error.strerror or error}: {error.filename or ''}")
        return 1
    except KeyboardInterrupt:
        print_err("interrupted before anything was begun.")
        return 130


def verbs() -> dict[str, str]:
    """Return the verbs and what each does: the modules of this folder that define `main`, read and not imported."""
    found = {}
    folder = Path(__file__).parent
    for path in sorted([*folder.glob("*.py"), *folder.glob("*/__init__.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            name = path.parent.name if path.stem == "__init__" else path.stem
            found[name] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def _run(argv: list[str]) -> int:
    if argv and WORD.match(argv[0]) and "=" not in argv[0]:
        return _run_verb(argv[0], argv[1:])
    arguments = parser().parse_intermixed_args(argv)
    if arguments.version:
        print_out(f"nnexp {version('nnexp')}")
        return 0
    for word in arguments.overrides:
        if word in verbs():
            raise ConfigError(f"{word}: a verb comes first: nnexp {word} ...")
    if arguments.help:
        print_out(help_text(discover(), arguments.overrides, verbs()))
        return 0
    from nnexp.commands.train import train

    return train(arguments, discover(), argv)


def _run_verb(name: str, argv: list[str]) -> int:
    known = verbs()
    if name in known:
        code: int = importlib.import_module(f"nnexp.commands.{name}").main(argv)
        return code
    if name in TRAINS:
        raise ConfigError(f"{name}: the command without a verb trains. Leave the word out.")
    advice = f" Did you mean '{MEANT[name]}'?" if name in MEANT else did_you_mean(name, known)
    raise ConfigError(f"{name}: there is no such verb.{advice} Available: {', '.join(known)}. An override is KEY=VALUE.")
