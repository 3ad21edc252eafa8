"""Read the help texts of parameters from docstrings (`Args:` sections)."""

from __future__ import annotations

import ast
from dataclasses import replace

from docstring_parser import parse as parse_docstring

from nnexp.registry.schema import Parameter
from nnexp.registry.signature import SignatureReader, last_name


def with_docs(parameters: dict[str, Parameter], helps: dict[str, str]) -> dict[str, Parameter]:
    """Return copies of the parameters with their help texts; "" where there is none."""
    return {name: replace(parameter, help=helps.get(name, "")) for name, parameter in parameters.items()}


def argument_docs(doc: str) -> dict[str, str]:
    """Return the description of each argument in the `Args:` section of a docstring, on one line."""
    return {p.arg_name: " ".join((p.description or "").split()) for p in parse_docstring(doc).params}


def inherited_argument_docs(node: ast.ClassDef, reader: SignatureReader) -> dict[str, str]:
    """Return the argument descriptions of a class and of the nnexp base classes it inherits fields from."""
    helps: dict[str, str] = {}
    for base in node.bases:
        name = last_name(base)
        if name in reader.bases:
            helps |= inherited_argument_docs(reader.bases[name].classes[name], reader.bases[name])
    return helps | argument_docs(ast.get_docstring(node) or "")
