"""Read the signature of a class as a schema from its syntax tree, without running plugin code or importing torch."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from nnexp.base import PluginError, short_repr, shorten
from nnexp.registry.contracts import Range
from nnexp.registry.schema import Option, Parameter, first_fit

SCALARS = {"int": int, "float": float, "bool": bool, "str": str, "None": type(None)}


class SignatureReader:
    """Reader of the parameters of the classes in one module.

    Args:
        tree: the module's syntax tree.
        where: the file's name, for error messages.
        bases: readers of classes in other modules that may be inherited from, by class name.
    """

    def __init__(self, tree: ast.Module, where: str, bases: dict[str, SignatureReader] | None = None) -> None:
        self.where = where
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.aliases = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        self.bases = bases or {}

    def fail(self, node: ast.AST, reason: str) -> PluginError:
        """Return a PluginError with file and line of a node; the caller raises it."""
        return PluginError(f"{self.where}:{getattr(node, 'lineno', 1)}: {reason}")

    def parameters(self, name: str) -> tuple[list[str], dict[str, Parameter]]:
        """Return the names of the positional parameters and the schema of the keyword-only ones of class `name`.

        Raises PluginError, with file and line, where a parameter is not allowed or cannot be read.
        """
        node = self.classes[name]
        init = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
        if init is not None:
            return self._from_init(init)
        positional, inherited = self._inherited(node)
        if is_dataclass(node):
            inherited = inherited | self._from_fields(node)
        return positional, inherited

    def _inherited(self, node: ast.ClassDef) -> tuple[list[str], dict[str, Parameter]]:
        for base in node.bases:
            name = last_name(base)
            if name in self.classes:
                return self.parameters(name)
            if name in self.bases:
                return self.bases[name].parameters(name)
            if name not in ("Module", "object", "Protocol"):
                reason = f"{node.name} defines no __init__ and its base class {name} is not in this file"
                raise self.fail(node, f"{reason}, so its parameters cannot be read. Write an __init__.")
        return [], {}

    def _from_init(self, init: ast.FunctionDef) -> tuple[list[str], dict[str, Parameter]]:
        arguments = init.args
        if arguments.kwarg or arguments.vararg:
            raise self.fail(init, "*args and **kwargs hide misspelt keys. Name every parameter.")
        positional = [a.arg for a in [*arguments.posonlyargs, *arguments.args][1:]]
        pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        return positional, {a.arg: self._parameter(a, a.arg, a.annotation, default) for a, default in pairs}

    def _from_fields(self, node: ast.ClassDef) -> dict[str, Parameter]:
        fields = [n for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
        return {f.target.id: self._parameter(f, f.target.id, f.annotation, f.value) for f in fields}  # type: ignore[union-attr]

    def _parameter(self, node: ast.AST, name: str, annotation: ast.expr | None, default: ast.expr | None) -> Parameter:
        if annotation is None or default is None:
            raise self.fail(node, f"parameter '{name}' needs a type and a default.")
        marks: list[str] = []
        options = tuple(self._options(annotation, name, marks))
        value = self._literal(default, f"the default of '{name}'")
        try:
            value = first_fit(options, value)
        except ValueError:
            raise self.fail(node, f"the default of '{name}' does not match its type: {short_repr(value)}.") from None
        is_file = "File" in marks
        if is_file and any(option.type not in (str, type(None)) for option in options):
            raise self.fail(node, f"'{name}' is marked File, so it must be str or str | None.")
        return Parameter(name, options, value, per_lane="PerLane" in marks, is_file=is_file)

    def _literal(self, node: ast.expr, what: str) -> Any:
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError):
            raise self.fail(node, f"{what} is not a literal: {source_of(node)}.") from None
        try:
            repr(value)  # messages, listings and run directories need it
        except ValueError:
            raise self.fail(node, f"{what} has more digits than Python can print.") from None
        return value

    def _parse_string(self, node: ast.Constant, name: str) -> ast.expr:
        """Return the annotation written in a string, with the string's line number."""
        try:
            inner: ast.expr = ast.parse(str(node.value), mode="eval").body
        except SyntaxError:
            raise self._bad_type(node, name) from None
        for part in ast.walk(inner):
            ast.copy_location(part, node)
        return inner

    def _options(self, node: ast.expr, name: str, marks: list[str]) -> list[Option]:
        """Return the options of an annotation; the names of marks (PerLane, File) are appended to `marks`."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self._options(self._parse_string(node, name), name, marks)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return [*self._options(node.left, name, marks), *self._options(node.right, name, marks)]
        if isinstance(node, ast.Constant) and node.value is None:
            return [Option(type(None))]
        if isinstance(node, ast.Name) and node.id in self.aliases:
            return self._options(self.aliases[node.id], name, marks)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, name, marks)
        if last_name(node) in SCALARS:
            return [Option(SCALARS[last_name(node)])]
        raise self._bad_type(node, name)

    def _subscript(self, node: ast.Subscript, name: str, marks: list[str]) -> list[Option]:
        inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        match last_name(node.value):
            case "Literal" if inner:
                values = tuple(self._literal(item, f"a choice of '{name}'") for item in inner)
                return [Option(type(values[0]), choices=values)]
            case "Optional":
                return [*self._options(inner[0], name, marks), Option(type(None))]
            case "Union":
                return [option for item in inner for option in self._options(item, name, marks)]
            case "list" | "List":
                return [Option(list, items=tuple(self._options(inner[0], name, marks)))]
            case "tuple" | "Tuple" if len(inner) == 2 and source_of(inner[1]) == "...":
                return [Option(tuple, items=tuple(self._options(inner[0], name, marks)))]
            case "Annotated":
                ranges = [self._mark(mark, name, marks) for mark in inner[1:]]
                range_ = next((r for r in ranges if r is not None), None)
                options = self._options(inner[0], name, marks)
                return [replace(o, range=range_) if range_ and o.type in (int, float) else o for o in options]
        raise self._bad_type(node, name)

    def _mark(self, mark: ast.expr, name: str, marks: list[str]) -> Range | None:
        """Return the range of an annotation `Range(...)`, or append the name of PerLane or File to `marks`."""
        if isinstance(mark, ast.Call) and last_name(mark.func) == "Range":
            return self._range(mark, name)
        if last_name(mark) in ("PerLane", "File"):
            marks.append(last_name(mark))
            return None
        allowed = "only Range(...), PerLane and File are allowed"
        raise self.fail(mark, f"'{name}' is annotated with {source_of(mark)}; {allowed}.")

    def _range(self, mark: ast.Call, name: str) -> Range:
        try:
            keywords = {str(k.arg): ast.literal_eval(k.value) for k in mark.keywords}
            result = Range(*map(ast.literal_eval, mark.args), **keywords)
            _ = 0 in result, str(result)  # raises for bounds that are not numbers or cannot be printed
        except (ValueError, TypeError):
            reason = f"{source_of(mark)} is not a range: give numbers as min, max, gt or lt."
            raise self.fail(mark, f"'{name}': {reason}") from None
        return result

    def _bad_type(self, node: ast.expr, name: str) -> PluginError:
        allowed = "int, float, bool, str, None, Literal, list[...], tuple[..., ...], Annotated and unions of these"
        return self.fail(node, f"'{name}' has type {source_of(node)}; allowed are {allowed}.")


def source_of(node: ast.AST) -> str:
    """Return the source of an expression, shortened for messages."""
    try:
        return shorten(ast.unparse(node))
    except (ValueError, RecursionError):
        return "an expression that is too long to be shown"


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name, without subscripts and calls: `Trainer` for `nnexp.Trainer[int]()`."""
    if isinstance(node, ast.Subscript | ast.Call):
        return last_name(node.value if isinstance(node, ast.Subscript) else node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def is_dataclass(node: ast.ClassDef) -> bool:
    """Return True where a class has the decorator `dataclass`."""
    return any(last_name(decorator) == "dataclass" for decorator in node.decorator_list)


def defined_names(node: ast.stmt) -> list[str]:
    """Return the names that a statement in the body of a class defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    names = [each for target in targets if target for each in ast.walk(target) if isinstance(each, ast.Name)]
    return [name.id for name in names if isinstance(name.ctx, ast.Store)]
