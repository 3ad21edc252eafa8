"""One lane in training: chunks, states and evaluation change no number; what the job's seeds decide."""

import pytest
import torch

from nnexp.base.errors import NnexpError

NOISY = '''"""A model that draws from all global generators in training, and keeps running means. A test of our own."""
import random

import numpy as np
from torch import nn

from nnexp import DataSpec, model
from nnexp.data.views import as_vector


@model
class Noisy(nn.Module):
    """Dropout, batch normalisation, and a factor from Python's and numpy's generators."""

    def __init__(self, data: DataSpec, *, hidden_size: int = 8) -> None:
        super().__init__()
        self.data = data
        self.hidden = nn.Sequential(nn.Linear(data.features, hidden_size), nn.BatchNorm1d(hidden_size), nn.Dropout(0.3))
        self.head = nn.Linear(hidden_size, data.outputs)

    def forward(self, x, lengths=None):
        factor = 1 + 0.1 * random.random() + 0.1 * np.random.rand()
        return self.head(self.hidden(as_vector(x, self.data))) * factor
'''
RMSPROP = '''"""RMSprop (Hinton, 2012), which only has an optimiser."""
from dataclasses import dataclass

import torch

from nnexp import Trainer, trainer


@trainer
@dataclass(kw_only=True)
class RMSprop(Trainer):
    """An optimiser of torch."""

    def optimizer(self, params):
        return torch.optim.RMSprop(params, lr=self.lr, momentum=0.9, weight_decay=self.weight_decay)
'''
DATASET = '''"""Rows that no built-in dataset has. A test of our own."""
import torch

from nnexp import DataSpec, dataset


@dataset
class Rows:
    """Random rows."""

    def __init__(self, generator: torch.Generator) -> None:
        self.spec = DataSpec({spec})
        self.train, self.val, self.test = (self._split(n, generator) for n in (40, 20, 10))

    def _split(self, n, generator):
        return {split}
'''
DATASETS = {
    "letters": (
        'kind="tokens", shape=(6,), vocab=5',
        "(torch.randint(5, (n, 6), generator=generator), torch.arange(n) % 2)",
    ),
    "heights": (
        'kind="vector", shape=(3,), target="value", outputs=1',
        "(torch.rand(n, 3, generator=generator), torch.rand(n, generator=generator))",
    ),
    "padded": (
        'kind="sequence", shape=(4, 1)',
        "(torch.rand(n, 4, 1, generator=generator), torch.arange(n) % 2, 1 + torch.arange(n) % 4)",
    ),
    "tagged": (
        'kind="sequence", shape=(4, 1), per_step=True',
        "(torch.rand(n, 4, 1, generator=generator), torch.randint(2, (n, 4), generator=generator))",
    ),
    "empty": ('kind="vector", shape=(3,)', "()"),
    "wrong": ('kind="vector", shape=(3,)', "(torch.rand(n, 4, generator=generator), torch.arange(n) % 2)"),
}
CASES = [
    ("dataset=moons", "model=mlp", "trainer=sgd"),
    ("dataset=moons", "model=mlp", "trainer.batch_size=33", "model.hidden_size=13", "model.num_layers=2"),
    ("dataset=pattern", "model=lstm"),
    ("dataset=pattern", "model=lstm", "trainer.batch_size=33", "model.hidden_size=13", "trainer.clip_norm=0.1"),
    ("dataset=moons", "model=mlp", "trainer.batch_size=full", "trainer.weight_decay=0.1"),
    ("dataset=moons", "model=noisy", "trainer=rmsprop"),
    ("dataset=padded", "model=lstm", "trainer=rmsprop", "precision=64"),
]
every_case = pytest.mark.parametrize("case", CASES, ids="-".join)


@pytest.fixture(scope="module")
def lane_of(tmp_path_factory, registry_with, make_lane):
    """A lane made from the plugins there are and those above."""
    folder = tmp_path_factory.mktemp("plugins")
    sources = {("model", "noisy"): NOISY, ("trainer", "rmsprop"): RMSPROP}
    sources |= {("dataset", name): DATASET.format(spec=spec, split=split) for name, (spec, split) in DATASETS.items()}
    for (kind, name), source in sources.items():
        (folder / kind).mkdir(exist_ok=True)
        (folder / kind / f"{name}.py").write_text(source)
    plugins = registry_with(folder)
    return lambda *overrides, **more: make_lane(*overrides, plugins=plugins, **more)


def _numbers(lane, rows) -> tuple:
    """All that two trainings must have in common, to the last bit."""
    return lane.step, rows, {name: value.tolist() for name, value in lane.module.state_dict().items()}


def _advance(lane, *stops: int) -> list:
    """All rows up to the last stop, one by one."""
    chunks = [lane.advance(stop) for stop in stops]
    return [chunk.row(step) for chunk in chunks for step in range(chunk.first, chunk.last_step + 1)]


@every_case
@pytest.mark.parametrize("chunk", [1, 7])
def test_the_length_of_a_chunk_changes_no_bit(lane_of, case, chunk):
    whole, pieces = lane_of(*case, "trainer.max_steps=50"), lane_of(*case, "trainer.max_steps=50")
    expected = _numbers(whole, _advance(whole, 50))
    assert _numbers(pieces, _advance(pieces, *range(chunk, 50, chunk), 50)) == expected


@every_case
def test_training_goes_on_from_a_state_bit_for_bit(lane_of, case, tmp_path):
    whole, resumed = lane_of(*case), lane_of(*case)
    _advance(whole, 13)
    torch.save(whole.state(), tmp_path / "state.pt")
    expected = _numbers(whole, _advance(whole, 30))
    resumed.restore(torch.load(tmp_path / "state.pt", weights_only=True))
    assert _numbers(resumed, _advance(resumed, 30)) == expected


@every_case
def test_a_state_is_a_snapshot_to_which_the_same_lane_can_go_back(lane_of, case):
    lane = lane_of(*case)
    _advance(lane, 13)
    state = lane.state()
    expected = _numbers(lane, _advance(lane, 30))
    lane.restore(state)
    assert _numbers(lane, _advance(lane, 30)) == expected


def test_training_pauses_at_any_step_and_goes_on_the_same(make_lane):
    stops = iter([False] * 7 + [True] + [False] * 100)
    lane = make_lane("dataset=moons", "model=mlp", should_stop=lambda: next(stops))
    whole = make_lane("dataset=moons", "model=mlp")
    first = lane.advance(20)
    assert (len(first), lane.step) == (7, 7)
    assert [*first.losses, *lane.advance(20).losses] == whole.advance(20).losses


@every_case
def test_evaluation_moves_no_training_number_and_can_be_repeated(lane_of, case, undrawn):
    plain, watched = lane_of(*case), lane_of(*case)
    expected = _numbers(plain, _advance(plain, 10, 20))
    rows = _advance(watched, 10)
    with undrawn():
        assert watched.evaluate("val") == watched.evaluate("val")
        watched.evaluate("test")
    assert _numbers(watched, rows + _advance(watched, 20)) == expected


@every_case
def test_to_look_ahead_at_the_next_step_moves_no_training_number(lane_of, case):
    plain, watched = lane_of(*case), lane_of(*case)
    expected = _numbers(plain, _advance(plain, 10, 20))
    rows = _advance(watched, 10)
    for look in (watched.first_evaluation, watched.first_step, lambda: watched.first_step(training=False)):
        look()
        assert watched.module.training
    assert _numbers(watched, rows + _advance(watched, 20)) == expected


@every_case
def test_training_is_the_same_whatever_the_global_generators_are_and_leaves_them(lane_of, case, undrawn):
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with undrawn():
            lane = lane_of(*case)
            results.append(_numbers(lane, _advance(lane, 10)))
    assert results[0] == results[1]


@pytest.mark.parametrize("precision", [32, 64])
@pytest.mark.parametrize("model", ["lstm", "mlp"])
@pytest.mark.parametrize("dataset", ["moons", "pattern", "letters", "heights", "padded"])
def test_every_kind_of_data_trains_in_both_precisions(lane_of, dataset, model, precision):
    lane = lane_of(f"dataset={dataset}", f"model={model}", f"precision={precision}", "trainer.max_steps=5")
    before = lane.evaluate("train")["train/loss"]
    lane.advance(5)
    assert lane.weights.vector.dtype == {32: torch.float32, 64: torch.float64}[precision]
    assert lane.evaluate("train")["train/loss"] < before


@pytest.mark.parametrize(
    ("losses", "waited"),
    [
        ([1.0], 0),
        ([1.0, 0.5, 0.25], 0),
        ([1.0, 0.5, 0.75, 0.625], 2),
        ([1.0, 0.5, 0.75, 0.4375], 0),
        ([0.5, 0.5, 0.5], 2),
        ([0.5, 0.75, float("nan"), float("inf")], 1),
    ],
)
def test_patience_waits_for_a_loss_lower_than_the_lowest(make_lane, losses, waited):
    lane = make_lane("dataset=moons", "model=mlp", "trainer.patience=3")
    for value in losses:
        lane.update_patience(value)
    assert lane.state()["patience"] == [min(losses), waited]


def test_patience_goes_on_from_a_state(make_lane):
    lane, resumed = (make_lane("dataset=moons", "model=mlp", "trainer.patience=3") for _ in range(2))
    for value in (0.5, 0.75, 0.625):
        lane.update_patience(value)
    resumed.restore(lane.state())
    assert not resumed.is_ended
    resumed.update_patience(0.5625)
    assert resumed.is_ended
    resumed.restore(lane.state())
    resumed.update_patience(0.4375)
    assert not resumed.is_ended


def test_one_prediction_per_step_trains(lane_of):
    lane = lane_of("dataset=tagged", "model=lstm", "trainer.batch_size=full", "trainer.max_steps=30")
    assert _advance(lane, 30)[-1]["train/loss"] < lane.evaluate("val")["val/loss"]


@pytest.mark.parametrize(("dataset", "found"), [("empty", "must be a tuple"), ("wrong", r"x has shape \(40, 4\)")])
def test_a_dataset_that_is_not_what_its_spec_says_is_refused(lane_of, dataset, found):
    with pytest.raises(NnexpError, match=rf"dataset '{dataset}', split 'train': .*{found}"):
        lane_of(f"dataset={dataset}", "model=mlp")
