"""What every plugin that is found must keep, so that a new one is tested with no test written: all, and datasets."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from contract.readme import REGISTRY

from nnexp.data.seeding import derive_seed, seeded, seeded_generator

PLUGINS = [plugin for _, plugin in sorted(REGISTRY.plugins.items())]

every_plugin = pytest.mark.parametrize("plugin", PLUGINS, ids=lambda p: f"{p.kind}={p.name}")
every_file = pytest.mark.parametrize(
    "path", sorted(Path(__file__).parents[2].glob("plugins/*/*.py")), ids=lambda p: p.stem
)
every_dataset = pytest.mark.parametrize("name", REGISTRY.names("dataset"))
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
DOORS = {"nnexp", "nnexp.data", "nnexp.nn", "nnexp.plotting", "nnexp.probing"}
every_split = pytest.mark.parametrize("split", ["train", "val", "test"])


@cache
def _dataset(name: str, seed: int):
    with seeded(derive_seed(seed, "dataset")):
        return REGISTRY.get("dataset", name).load()(seeded_generator(seed, "data"))


def test_no_plugin_is_broken():
    assert {key: broken.reason for key, broken in REGISTRY.broken.items()} == {}


@pytest.mark.parametrize("kind", ["dataset", "model", "trainer"])
def test_there_is_a_plugin_of_every_kind(kind):
    assert [plugin for plugin in PLUGINS if plugin.kind == kind]


@every_plugin
def test_a_plugin_is_marked_with_its_kind(plugin):
    assert plugin.load().nnexp_kind == plugin.kind


@every_plugin
def test_every_parameter_has_a_line_of_help(plugin):
    assert plugin.summary
    assert [name for name, parameter in plugin.parameters.items() if not parameter.help] == []


@every_plugin
def test_every_line_of_help_is_about_a_parameter(plugin):
    described = re.findall(r"^ +(\w+): ", inspect.getdoc(plugin.load()).partition("Args:")[2], re.MULTILINE)
    assert set(described) <= {*inspect.signature(plugin.load()).parameters}


@every_plugin
def test_the_module_names_its_source(plugin):
    assert re.search(r"\b(1[6-9]|20)\d\d\b|\bour own\b", plugin.source_doc), "name a year, or say that it is our own"


@every_plugin
def test_a_plugin_imports_the_package_by_its_doors_and_no_other_plugin(plugin):
    nodes = [*ast.walk(ast.parse(plugin.path.read_text(encoding="utf-8")))]
    modules = {node.module or "." for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert {module for module in modules if module.split(".")[0] in ("", "nnexp", "plugins")} <= DOORS


@every_file
def test_every_public_class_function_and_method_of_ours_has_a_docstring(path):
    module = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    bodies = [module.body, *(node.body for node in classes)]
    functions = [node for body in bodies for node in body if isinstance(node, ast.FunctionDef)]
    defined: list[ast.ClassDef | ast.FunctionDef] = [*classes, *functions]
    assert [node.name for node in defined if node.name[0] != "_" and not ast.get_docstring(node)] == []


@every_plugin
def test_the_schema_read_from_source_is_the_signature_of_the_class(plugin):
    signature = inspect.signature(plugin.load()).parameters.values()
    keywords = {p.name: p.default for p in signature if p.kind is p.KEYWORD_ONLY}
    assert plugin.defaults == keywords


@every_dataset
@every_split
def test_inputs_are_what_the_spec_says(name, split):
    dataset = _dataset(name, 0)
    data, x = dataset.spec, getattr(dataset, split)[0]
    assert len(x) > 0
    assert x.shape[1:] == data.shape
    if data.kind == "tokens":
        assert x.dtype in INTEGERS
        assert 0 <= x.min() <= x.max() < data.vocab
    else:
        assert x.dtype == torch.float32
        assert x.isfinite().all()


@every_dataset
@every_split
def test_targets_are_what_the_spec_says(name, split):
    dataset = _dataset(name, 0)
    data, (x, y, *lengths) = dataset.spec, getattr(dataset, split)
    leading = x.shape[: 1 + data.per_step]
    if data.target == "class":
        assert y.shape == leading
        assert y.dtype in INTEGERS
        classes, every = set(y.unique().tolist()), set(range(data.outputs))
        assert classes <= every if data.per_step else classes == every  # a short text need not hold every character
    else:
        assert y.shape in (leading, (*leading, data.outputs))
        assert y.dtype == torch.float32
    for each in lengths:
        assert each.shape == x.shape[:1]
        assert 1 <= each.min() <= each.max() <= data.max_length


@every_dataset
@every_split
def test_a_dataset_depends_on_its_generator_alone_and_leaves_global_ones_untouched(name, split, undrawn):
    first, other = getattr(_dataset(name, 0), split), getattr(_dataset(name, 1), split)
    given = seeded_generator(0, "data")
    before = given.get_state()
    torch.rand(7)
    with undrawn():
        same = getattr(REGISTRY.get("dataset", name).load()(given), split)
    is_drawn = not torch.equal(given.get_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first, same, strict=True))
    assert torch.equal(first[0], other[0]) is not is_drawn


@every_dataset
def test_the_splits_of_a_dataset_are_different_draws(name):
    dataset = _dataset(name, 0)
    starts = {split[0][:50].numpy().tobytes() for split in (dataset.train, dataset.val, dataset.test)}
    assert len(starts) == 3
