"""What every model that is found must keep, on every dataset that is found and on each kind of data."""

from functools import cache
from itertools import product

import contract
import pytest
from contract import rows, steps
from contract.combinations import covering, slow_but
from contract.readme import REGISTRY

from nnexp.data.data_spec import DataSpec
from nnexp.data.seeding import seeded_generator
from nnexp.registry.plugin_source import Plugin

MODELS = [REGISTRY.get("model", name) for name in REGISTRY.names("model")]
FUSED = [plugin for plugin in MODELS if hasattr(plugin.load(), "fused")]
SHAPES = contract.KINDS | contract.PER_STEP


@cache
def _spec(name: str) -> DataSpec:
    return SHAPES[name] if name in SHAPES else REGISTRY.get("dataset", name).load()(seeded_generator(0, "data")).spec


def _name(value: object) -> str | None:
    return value.name if isinstance(value, Plugin) else getattr(value, "__name__", None)


def _having(parameter: str) -> list[Plugin]:
    return [plugin for plugin in MODELS if parameter in plugin.parameters]


OPTIONS = contract.ALWAYS, MODELS, list(SHAPES)
ALL_SHAPES = slow_but(covering(*OPTIONS), list(product(*OPTIONS)))
# A rule that holds on data of each shape is broken by a dataset at most where that has a size of its own.
EVERY_TWO = covering(contract.ALWAYS, MODELS, REGISTRY.names("dataset"))
every_data = pytest.mark.parametrize("name", [*SHAPES, *REGISTRY.names("dataset")])
every_shape = pytest.mark.parametrize("name", SHAPES)
every_kind = pytest.mark.parametrize("name", contract.KINDS)


@pytest.mark.parametrize(("rule", "plugin", "name"), ALL_SHAPES, ids=_name)
def test_every_model_keeps_every_rule_on_data_of_every_shape(rule, plugin, name):
    rule(plugin.load(), _spec(name))


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "plugin", "name"), EVERY_TWO, ids=_name)
def test_every_model_and_rule_meet_every_dataset(rule, plugin, name):
    rule(plugin.load(), _spec(name))


@pytest.mark.parametrize("plugin", FUSED, ids=_name)
@every_data
def test_the_fused_path_gives_what_the_loop_gives(plugin, name):
    steps.the_fused_path_gives_what_the_loop_gives(plugin.load(), _spec(name))


@pytest.mark.parametrize("plugin", _having("bidirectional"), ids=_name)
@every_data
def test_a_model_with_two_directions_is_refused_where_each_position_is_predicted(plugin, name):
    steps.two_directions_are_refused_per_step(plugin.load(), _spec(name))


@pytest.mark.parametrize("plugin", _having("bidirectional"), ids=_name)
@every_kind
@pytest.mark.parametrize("rule", contract.OF_ROWS, ids=_name)
def test_a_model_with_two_directions_keeps_every_rule_of_rows(rule, plugin, name):
    rule(plugin.load(), _spec(name), bidirectional=True)


@pytest.mark.parametrize("plugin", _having("forget_bias"), ids=_name)
@every_shape
@pytest.mark.parametrize("num_layers", [1, 3])
def test_a_forget_bias_counts_once(plugin, name, num_layers):
    steps.the_forget_bias_counts_once(plugin.load(), _spec(name), num_layers=num_layers)


CHOICES = [
    (plugin, {key: choice})
    for plugin in MODELS
    for key, parameter in plugin.parameters.items()
    for option in parameter.options
    for choice in (option.choices or ((None,) if option.type is type(None) else ()))
]
OF_CHOICES = [rows.gives_one_finite_number_per_class_or_value, steps.padding_moves_no_output]


@pytest.mark.parametrize(("plugin", "values"), CHOICES, ids=lambda v: _name(v) or str(v))
@every_shape
def test_every_choice_of_a_model_works_on_every_kind_of_data(plugin, values, name):
    for rule in OF_CHOICES:
        rule(plugin.load(), _spec(name), **values)
