"""The models' contract finds faults: copies of built-ins with one planted in each fail the rule that it breaks."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import contract
import pytest
from contract import rows, steps
from contract.registry import REGISTRY

from nnexp.data import views
from nnexp.registry.discovery import Registry

DATA = contract.KINDS | contract.PER_STEP


class Fault(NamedTuple):
    """A rule, the data on which it is broken, and a built-in whose source has `new` in the place of `old`."""

    rule: Callable[..., None]
    data: str
    model: str
    old: str
    new: str


def _replaced(source: str, old: str, new: str) -> str:
    assert source.count(old) == 1, f"to be replaced, this must be there once: {old}"
    return source.replace(old, new)


def _windows_that_read(positions: str) -> str:
    """The imports of a plugin that has its own `as_windows`, in which other positions stand for the right ones."""
    old = "sequence = as_sequence(x, data, lengths)"
    own = _replaced(inspect.getsource(views.as_windows), old, f"{old}[:, {positions}]")
    return f"from torch.nn.functional import pad\nfrom nnexp.data import as_sequence, as_vector\n\n\n{own}"


CAUSAL, LOOP = steps.no_output_depends_on_a_later_position, steps.the_fused_path_gives_what_the_loop_gives
ALONE, KEPT = rows.a_row_depends_neither_on_other_rows_nor_on_their_order, rows.an_output_depends_on_no_batch_before
USED, LOADED = rows.every_parameter_gets_a_gradient, rows.weights_saved_and_loaded_give_the_same_output
FORGET, PADDING = steps.the_forget_bias_counts_once, steps.padding_moves_no_output

WINDOWS = "from nnexp.data import as_vector, as_windows\n"
WEIGHTS = "nn.Parameter(torch.randn(num_patches, hidden_size) * 0.02)"
HIDDEN, HEAD = "self.hidden(inputs)", "output: Tensor = self.head(inputs)"
KEEP = 'self.kept = getattr(self, "kept", 0) + x.detach().mean()\n        '
SEED = "torch.manual_seed(0)\n        "
EMBED = "self.embed = "
ZERO = "[size : 2 * size] = 0.0"
SUFFIXES = "for suffix in self.suffixes():"

FAULTS = {
    "a causal mask leaks at one position": Fault(
        CAUSAL, "a sequence per step", "vit", ".tril()", ".tril().index_fill_(0, torch.tensor(2), True).tril(1)"
    ),
    "a window reads one position too early": Fault(
        CAUSAL, "a sequence per step", "linear", WINDOWS, _windows_that_read("[0, 1, 3, 3, 4, 5]")
    ),
    "a window of tokens reads the last one too early": Fault(
        CAUSAL, "tokens per step", "mlp", WINDOWS, _windows_that_read("[0, 1, 2, 3, 4, 6, 6]")
    ),
    "a filter sees one position ahead": Fault(CAUSAL, "tokens per step", "cnn", "(span, 0) if", "(span - 1, 1) if"),
    "a layer is never used": Fault(
        USED, "a vector", "mlp", "self.hidden = ", "self.unused, self.hidden = nn.Linear(2, 2), "
    ),
    "a layer is cut off from the gradient": Fault(USED, "a vector", "mlp", HIDDEN, f"{HIDDEN}.detach()"),
    "a number is kept from batch to batch": Fault(KEPT, "a vector", "linear", HEAD, f"{KEEP}{HEAD} + self.kept"),
    "a number is kept in training alone": Fault(
        rows.all_that_changes_in_training_is_in_the_state,
        "a vector",
        "linear",
        HEAD,
        f"{KEEP}{HEAD} + self.kept * self.training",
    ),
    "rows count by their place in the batch": Fault(
        ALONE, "a vector", "mlp", HIDDEN, "self.hidden(inputs + x.new_ones(len(x), 1).cumsum(0))"
    ),
    "rows are centred on the batch": Fault(ALONE, "a vector", "mlp", HIDDEN, "self.hidden(inputs - x.mean(0))"),
    "the unfused path of a cnn takes the mean where the fused takes the maximum": Fault(
        LOOP, "an image", "cnn", ".flatten(1, -2).amax(1).T", ".flatten(1, -2).mean(1).T"
    ),
    "both forget biases are filled": Fault(FORGET, "a sequence", "lstm", ZERO, ZERO.replace("0.0", "forget_bias")),
    "the forget bias is in the first layer alone": Fault(
        partial(FORGET, num_layers=2), "a sequence", "lstm", SUFFIXES, SUFFIXES.replace("()", "()[:1]")
    ),
    "the seed is set before weights are drawn": Fault(
        rows.the_global_seed_decides_the_weights,
        "a vector",
        "vit",
        EMBED,
        SEED + EMBED,
    ),
    "the seed is set after weights are drawn": Fault(
        rows.seeds_no_global_generator, "a vector", "vit", "self.positions = ", f"{SEED}self.positions = "
    ),
    "weights are in no state_dict": Fault(LOADED, "an image", "vit", WEIGHTS, WEIGHTS.removeprefix("nn.Parameter")),
    "padding is read": Fault(
        PADDING, "tokens", "cnn", "as_sequence(x, self.data, lengths)", "as_sequence(x, self.data)"
    ),
    "there is an output too many": Fault(
        rows.gives_one_finite_number_per_class_or_value,
        "one value",
        "linear",
        "data.outputs, bias",
        "data.outputs + 1, bias",
    ),
}


@pytest.fixture
def load(write_plugin):
    """The class of a plugin, from its source."""

    def made(name: str, source: str) -> type:
        folder = write_plugin(name, source).parents[1]
        return Registry([folder]).get("model", name).load()

    return made


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(load, name):
    rule, data, model, old, new = FAULTS[name]
    source = REGISTRY.get("model", model).path.read_text(encoding="utf-8")
    rule(load("copy", source), DATA[data])
    faulty = load("faulty", _replaced(source, old, new))
    with pytest.raises(AssertionError):
        rule(faulty, DATA[data])


@pytest.mark.slow
@pytest.mark.parametrize("rule", contract.ALWAYS, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("model", sorted({fault.model for fault in FAULTS.values()}))
def test_a_copy_without_fault_passes(load, model, rule):
    copy = load("copy", REGISTRY.get("model", model).path.read_text(encoding="utf-8"))
    for data in DATA.values():
        rule(copy, data)
