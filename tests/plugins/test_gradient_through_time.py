"""Gradients through time: claims on torch's own layers, loops written out by hand, horizons that arithmetic says."""

import json
import math
import statistics
import sys
from typing import Any

import pytest
import torch
from contract.compose import jobs_of
from contract.registry import plugin
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nnexp import DataSpec
from nnexp.base.signals import StopRequest
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.plan_runner import run_plan
from nnexp.plotting.rendering import render
from nnexp.probing.recurrent_states import record_states
from nnexp.registry.observation import to_plain

pytestmark = pytest.mark.slow


Probe = plugin("probe", "gradient_through_time")
flow_of, distances, first_step, fit_line = (
    getattr(sys.modules[Probe.__module__], name) for name in ("flow_of", "distances", "first_step", "fit_line")
)
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "tanh": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
    "lstm": (nn.LSTM, {}),
    "lstm projected": (nn.LSTM, {"proj_size": 2}),
    "gru": (nn.GRU, {}),
}
LENGTHS = torch.tensor([4, 7, 1, 7, 2])

# |dL/dx_0| in 64 bits of the RNN, and of the LSTM by forget bias 0, 1, 3, 5, at each length; seed 0.
FIRST = {
    5: (0.0051732, 0.00099821, 0.0051489, 0.015657, 0.018623),
    20: (3.2251e-06, 1.0602e-06, 0.00024825, 0.00062229, 0.0047469),
    50: (1.5949e-12, 2.9998e-12, 7.1711e-06, 0.02894, 0.037669),
    100: (1.6294e-23, 1.5005e-21, 1.1248e-08, 0.00031534, 0.043224),
    200: (4.3137e-46, 3.1662e-40, 2.6872e-14, 0.00025608, 0.13927),
}
# Its log10 by model at lengths 50 and 200: mean and standard deviation of 12 seeds.
OVER_SEEDS = {
    ("rnn", 50): (-13.976, 1.5937),
    ("rnn", 200): (-50.845, 5.257),
    ("lstm", 50): (-11.996, 0.87445),
    ("lstm", 200): (-40.53, 2.5634),
}


class Plain(nn.Module):
    """One of torch's layers, and an output of its last state; of packed rows where they differ in length."""

    def __init__(self, core: Any, outputs: int = 1) -> None:
        super().__init__()
        self.core, self.head = core, nn.Linear(core.proj_size or core.hidden_size, outputs)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        if lengths is None:
            return self.head(self.core(x)[0][:, -1])
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        last = self.core(packed)[1]
        return self.head((last[0] if isinstance(last, tuple) else last)[-1])


def _summed(output: Tensor) -> Tensor:
    return output.sum()


def _sequences(length: int, channels: int = 1) -> DataSpec:
    return DataSpec(kind="sequence", shape=(length, channels), target="value", outputs=1)


def _claimed(kind: type, forget_bias: float | None, length: int, seed: int) -> float:
    """log10 of |dL/dx_0| in the claims' setup: layer, output and sequence are drawn in this order, in 32 bits."""
    torch.manual_seed(seed)
    model, x = Plain(kind(1, 32, batch_first=True)), torch.randn(1, length, 1)
    if forget_bias is not None:
        with torch.no_grad():
            model.core.bias_ih_l0[32:64], model.core.bias_hh_l0[32:64] = forget_bias, 0.0
    return flow_of(model.double(), _sequences(length), _summed, x.double()).inputs[0]


@pytest.mark.parametrize("length", FIRST)
def test_the_gradient_of_the_first_step_is_that_of_the_claims(length):
    models = [(nn.RNN, None), *((nn.LSTM, bias) for bias in (0.0, 1.0, 3.0, 5.0))]
    for (kind, bias), expected in zip(models, FIRST[length], strict=True):
        assert 10 ** _claimed(kind, bias, length, 0) == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "length"), OVER_SEEDS)
def test_over_the_seeds_of_the_claims_its_mean_is_theirs(name, length):
    kind = {"rnn": nn.RNN, "lstm": nn.LSTM}[name]
    logs = [_claimed(kind, None, length, seed) for seed in range(12)]
    mean, deviation = OVER_SEEDS[name, length]
    assert statistics.mean(logs) == pytest.approx(mean, rel=1e-4)
    assert min(abs(statistics.stdev(logs) - deviation), abs(statistics.pstdev(logs) - deviation)) < 1e-3


NOISE = """
import torch
from nnexp import DataSpec, dataset

@dataset
class Noise:
    \"\"\"One sequence of noise. Its target is so far away that the gradient of the loss is 1e8 times the output's.

    Args:
        generator: the source of every draw.
        length: positions.
    \"\"\"

    def __init__(self, generator: torch.Generator, *, length: int = 50) -> None:
        self.spec = DataSpec(kind="sequence", shape=(length, 1), target="value", outputs=1)
        x = torch.randn(1, length, 1, generator=generator)
        y = torch.full((1, 1), -5e7)
        self.train, self.val, self.test = (x, y), (x.clone(), y), (x.clone(), y)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "length"), OVER_SEEDS)
def test_runs_that_train_for_0_steps_write_the_same_for_other_draws(tmp_path, registry_of, monkeypatch, name, length):
    """Two means of 12 draws each differ by their standard error, sqrt(2 / 12) of one draw's; thrice that is allowed."""
    monkeypatch.setattr("nnexp.probing.runner.render", lambda *_: {})
    plugins = registry_of("noise", dataset=NOISE)
    job = ["dataset=noise", f"dataset.length={length}", f"model={name}", "trainer.max_steps=0", "trainer.batch_size=1"]
    job += ["probe=[gradient_through_time]", *(["model.forget_bias=null"] if name == "lstm" else [])]
    seeds = ("seed=range(12)", "dataset.seed=range(12)", "sweep.zip=[seed,dataset.seed]", f"runs='{tmp_path}'")
    jobs = jobs_of([*job, *seeds], plugins, multirun=True)
    runs = [result.run for result in run_plan(plan_cohorts(jobs, plugins), plugins, StopRequest(), quiet=True)]
    written = [json.loads((run.path / "run.json").read_text()) for run in runs]
    assert len({job.model.seed for job in jobs}) == len({job.dataset.seed for job in jobs}) == 12
    assert [each["notes"] for each in written] == [[]] * 12
    logs = [each["probes"]["gradient_through_time/first_log10"] - 8 for each in written]
    mean, deviation = OVER_SEEDS[name, length]
    assert statistics.mean(logs) == pytest.approx(mean, abs=3 * math.sqrt(2 / 12) * deviation)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(("num_layers", "both", "bias"), [(1, False, True), (2, True, True), (2, False, False)])
def test_step_by_step_layers_give_what_torchs_own_give(kind, batch_first, num_layers, both, bias):
    made, own = KINDS[kind]
    options = {"num_layers": num_layers, "bidirectional": both, "bias": bias, "batch_first": batch_first, **own}
    core = nn.ModuleDict({"core": made(3, 5, **options, dtype=torch.float64)})
    x = torch.randn(5, 7, 3, dtype=torch.float64)
    packed = pack_padded_sequence(x if batch_first else x.transpose(0, 1), LENGTHS, batch_first, enforce_sorted=False)
    given = x if batch_first else x.transpose(0, 1)
    states = _flat(core["core"](given)[1])
    started = tuple(torch.randn_like(s) for s in states)
    hx = started if len(started) > 1 else started[0]
    calls = [(given,), (given, hx), (packed,), (packed, hx)]
    expected = [core["core"](*call) for call in calls]
    for call, (output, last) in zip(calls, expected, strict=True):
        with record_states(core) as record:
            result, result_last = core["core"](*call)
        assert len(record.tracks) == num_layers * (1 + both)
        if call[0] is packed:
            assert torch.equal(result.sorted_indices, output.sorted_indices)
            result, output = (pad_packed_sequence(each)[0] for each in (result, output))
        torch.testing.assert_close(result, output, rtol=0, atol=1e-12)
        torch.testing.assert_close(_flat(result_last), _flat(last), rtol=0, atol=1e-12)
    assert "forward" not in vars(core["core"])


def _flat(states: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return states if isinstance(states, tuple) else (states,)


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
def test_step_by_step_cells_give_what_torchs_own_give(cell):
    core = nn.ModuleDict({"core": cell(3, 5, dtype=torch.float64)})
    x = torch.randn(4, 3, dtype=torch.float64)
    first = core["core"](x)
    expected = core["core"](x, first)
    with record_states(core) as record:
        result = core["core"](x, core["core"](x))
    torch.testing.assert_close(_flat(result), _flat(expected), rtol=0, atol=1e-12)
    assert len(record.tracks["core"].states["h"]) == 2


@pytest.mark.parametrize("kind", ["tanh", "lstm", "gru"])
@pytest.mark.parametrize("lengths", [None, torch.tensor([6, 3])], ids=["whole", "packed"])
def test_the_gradient_of_a_state_is_the_finite_difference_of_moving_it(kind, lengths):
    """A state that torch's own layer reached is moved, and the rest of the sequence read from there."""
    made, own = KINDS[kind]
    model = Plain(made(2, 4, batch_first=True, **own)).double()
    x, ends = torch.randn(2, 6, 2, dtype=torch.float64), [6, 6] if lengths is None else lengths.tolist()
    flow = flow_of(model, _sequences(6, 2), _summed, x, *([] if lengths is None else [lengths]))
    for letter, number in (("h", 0), ("c", 1)) if kind == "lstm" else (("h", 0),):
        for t in range(6):
            logs = [_moved(model, x[row : row + 1, :end], t, number) for row, end in enumerate(ends) if t < end]
            assert flow.states[f"{letter} core.l0"][t] == pytest.approx(statistics.mean(logs), abs=1e-5)


@torch.no_grad()
def _moved(model: Plain, x: Tensor, t: int, number: int, eps: float = 1e-5) -> float:
    """log10 of |dL/dh_t| of one row, by central differences."""
    before = _flat(model.core(x[:, : t + 1])[1])
    slopes = []
    for unit in range(before[0].shape[-1]):
        pair = []
        for sign in (1, -1):
            state = [part.clone() for part in before]
            state[number][..., unit] += sign * eps
            if number == 1:  # h_t = o tanh(c_t) moves with it
                state[0] = before[0] / before[1].tanh() * state[1].tanh()
            given = tuple(state) if len(state) > 1 else state[0]
            h = model.core(x[:, t + 1 :], given)[0][:, -1] if t + 1 < x.shape[1] else state[0][-1]
            pair.append(model.head(h).sum())
        slopes.append((pair[0] - pair[1]) / (2 * eps))
    return torch.stack(slopes).norm().log10().item()


def test_a_gradient_is_that_of_the_loss_of_each_row_in_the_data(view_of):
    """By hand: the mean over rows of log10 of the norm, of each row's own cross-entropy; three rows of 64 bits."""
    view = view_of("dataset=pattern", "model=gru", "precision=64", "model.hidden_size=4")
    seen = Probe(num_rows=3)(view)
    x, y = view.rows("train", 3)
    x.requires_grad_()
    with torch.enable_grad():
        nn.functional.cross_entropy(view.module(x), y, reduction="sum").backward()
    expected = x.grad.norm(dim=-1).log10().mean(0)
    assert seen.pictures["gradient"].numbers["log10 of the norm"]["x"] == pytest.approx(expected.tolist(), abs=1e-9)
    assert seen.scalars["first_log10"] == pytest.approx(expected[0].item())
    assert seen.scalars["last_log10"] == pytest.approx(expected[-1].item())
    slope = torch.linalg.lstsq(torch.stack([torch.arange(16.0), torch.ones(16)], 1).double(), expected[:, None])
    assert seen.scalars["decay_log10_per_step"] == pytest.approx(slope.solution[0].item())


def test_where_every_step_has_a_prediction_the_loss_is_that_of_the_last(view_of):
    view = view_of("dataset=chartext", "model=rnn", "precision=64", "dataset.length=9")
    seen = Probe(num_rows=1)(view)
    x, y = view.rows("train", 1)
    given: Any = nn.functional.one_hot(x.long(), view.data.vocab).double().requires_grad_()
    with torch.enable_grad():
        nn.functional.cross_entropy(view.module(given)[:, -1], y[:, -1].long()).backward()
    expected = given.grad[0].norm(dim=-1).log10().tolist()
    assert seen.pictures["gradient"].numbers["log10 of the norm"]["x"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("both", [False, True])
def test_padding_has_no_gradient_and_counts_in_no_mean(view_of, both):
    job = ("dataset=pattern", "dataset.min_length=8", "model=lstm", f"model.bidirectional={both}", "precision=64")
    view = view_of(*job)
    x, y, lengths = view.rows("train", 512)
    row = int(lengths.argmin())
    module, end = view.module, int(lengths[row])
    part = (x[row : row + 1], lengths[row : row + 1])
    flow = flow_of(module, view.data, lambda out: view.loss(out, y[row : row + 1]), *part)
    whole = flow_of(module, DataSpec(kind="sequence", shape=(end, 2)), _summed, part[0][:, :end])
    for name, logs in {"x": flow.inputs, **flow.states}.items():
        assert all(log is not None for log in logs[:end]), name
        assert all(log is None for log in logs[end:]), name
    assert [log is None for log in whole.inputs] == [False] * end


def test_a_gradient_far_below_32_bits_is_no_zero_and_no_path_is_null():
    core: Any = nn.RNN(1, 1, batch_first=True, bias=False).double()
    with torch.no_grad():
        core.weight_ih_l0[:], core.weight_hh_l0[:] = 1.0, 1e-3
    x = torch.zeros(1, 70, 1, dtype=torch.float64)  # tanh has slope 1 there: the factor is 1e-3 at every step
    model = Plain(core).double()
    logs = flow_of(model, _sequences(70), lambda out: out.sum() / model.head.weight.item(), x).inputs
    assert logs == pytest.approx([-3.0 * (69 - t) for t in range(70)], abs=1e-9)
    with torch.no_grad():
        core.weight_hh_l0[:] = 0.0
    assert flow_of(model, _sequences(70), _summed, x).inputs[:-1] == [None] * 69


def test_the_line_is_that_of_least_squares_and_leaves_out_what_is_missing():
    assert fit_line([1.0, None, 2.0, 2.5]) == pytest.approx((0.5, 1.0))
    assert fit_line([None, 1.0]) is None


@pytest.mark.parametrize(("factor", "steps"), [(0.5, 7), (0.1, 2), (0.9, None)])
def test_a_horizon_is_that_which_arithmetic_says_and_later_steps_do_not_move_it(factor, steps):
    """relu without inputs, states above 0: a distance falls by a factor at each step. Two states are 0.9 apart."""
    core: Any = nn.RNN(1, 1, nonlinearity="relu", batch_first=True, bias=False).double()
    with torch.no_grad():
        core.weight_ih_l0[:], core.weight_hh_l0[:] = 1.0, factor
    model, starts = Plain(core).double(), torch.tensor([[0.05], [0.95]], dtype=torch.float64)
    for length in (12, 13, 30):
        with record_states(model, lambda state: starts) as record:
            model(torch.zeros(2, length, 1, dtype=torch.float64))
        states = torch.stack(record.tracks["core.l0"].states["h"])
        assert first_step((states[:, 0] - states[:, 1]).abs(), 0.01) == steps


def test_a_horizon_is_the_first_step_even_where_states_part_again():
    falls = torch.tensor([0.5, 0.005, 0.9, 0.9])
    assert first_step(falls[:, None], 0.01) == 2
    never = torch.full((4,), 0.5)
    assert first_step(torch.stack([falls, falls, never, never], 1), 0.01) == 2
    assert first_step(torch.stack([falls, never, never], 1), 0.01) is None
    assert first_step(falls[:, None], 0.01, torch.tensor([1])) is None  # the row ends before


def test_a_horizon_that_never_comes_is_no_number(view_of):
    small = ("dataset=sine", "dataset.length=12", "model=rnn", "precision=64")
    never, soon = (Probe()(view_of(*small, f"model.init_scale={scale}")) for scale in (3, 0.2))
    assert "horizon_steps" not in never.scalars
    assert "**> 12** steps" in never.texts["memory"]
    assert 1 < soon.scalars["horizon_steps"] < 12
    assert f"**{soon.scalars['horizon_steps']}** steps" in soon.texts["memory"]


def test_gates_and_norms_are_those_of_the_states(view_of):
    """Without recurrent or input weights gates are their biases: an LSTM's forget gate of 1 is sigmoid(1)."""
    seen = Probe()(view_of("dataset=pattern", "model=lstm", "model.init=normal", "model.init_scale=0"))
    panels = to_plain(seen.pictures["states"].numbers)
    assert panels["gates"]["forget core.l0"] == pytest.approx([1 / (1 + math.exp(-1))] * 16)
    assert panels["gates"]["input core.l0"] == pytest.approx([0.5] * 16)
    assert panels["norms"] == {"h core.l0": [0.0] * 16, "c core.l0": [0.0] * 16}
    assert seen.scalars["gate/forget/core.l0"] == pytest.approx(1 / (1 + math.exp(-1)))


UNSEEN = """
import torch
from torch import nn
from nnexp import DataSpec, model
from nnexp.data.views import as_sequence


class Leaky(nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        self.given, self.own = nn.Linear(channels, size), nn.Linear(size, size)

    def forward(self, x, h):
        return 0.5 * h + 0.5 * torch.tanh(self.given(x) + self.own(h))


@model
class Unseen(nn.Module):
    \"\"\"A cell of its own in a loop, with an output at each step.

    Args:
        data: what the dataset says of its tensors.
        backward: read the last position first.
        lookup: read tokens by an embedding.
    \"\"\"

    def __init__(self, data: DataSpec, *, backward: bool = False, lookup: bool = False) -> None:
        super().__init__()
        self.data, self.backward, self.size = data, backward, 6
        self.embed = nn.Embedding(data.vocab, 3) if lookup else None
        self.cell = Leaky(3 if lookup else data.channels, 6)
        self.head = nn.Linear(6, data.outputs)

    def forward(self, x, lengths=None):
        rows = as_sequence(x, self.data, lengths) if self.embed is None else self.embed(x.long())
        h, outputs = rows.new_zeros(len(rows), self.size), []
        for t in range(rows.shape[1])[:: -1 if self.backward else 1]:
            h = self.cell(rows[:, t], h)
            outputs.append(self.head(h))
        return torch.stack(outputs, 1) if self.data.per_step else outputs[-1]
"""


@pytest.fixture
def unseen(registry_of):
    return registry_of("unseen", model=UNSEEN)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("dataset", ["pattern", "edges"])
def test_a_cell_never_seen_before_is_found_in_its_loop(view_of, unseen, dataset, backward):
    """By hand: the same loop, with each state kept."""
    job = (f"dataset={dataset}", "model=unseen", f"model.backward={backward}", "precision=64")
    view = view_of(*job, plugins=unseen)
    seen = Probe(num_rows=2)(view)
    x, y = view.rows("train", 2)
    rows = x if dataset == "pattern" else x.transpose(1, 2).flatten(2)
    h, kept = torch.zeros(2, 6, dtype=torch.float64), []
    with torch.enable_grad():
        for t in range(rows.shape[1])[:: -1 if backward else 1]:
            h = view.module.cell(rows[:, t], h)
            h.retain_grad()
            kept.append(h)
        nn.functional.cross_entropy(view.module.head(h), y, reduction="sum").backward()
    expected = [state.grad.norm(dim=-1).log10().mean().item() for state in kept[:: -1 if backward else 1]]
    logs = seen.pictures["gradient"].numbers["log10 of the norm"]
    assert list(logs) == ["x", "h cell"]
    assert logs["h cell"] == pytest.approx(expected, abs=1e-9)
    assert ("memory" in seen.texts) == (not backward)


def test_tokens_that_are_looked_up_have_the_gradient_of_what_the_embedding_gives(view_of, unseen):
    job = ("dataset=chartext", "dataset.length=9", "model=unseen", "model.lookup=true", "precision=64")
    view = view_of(*job, plugins=unseen)
    seen = Probe(num_rows=1)(view)
    x, y = view.rows("train", 1)
    with torch.enable_grad():
        rows = view.module.embed(x.long()).detach().requires_grad_()
        h = torch.zeros(1, 6, dtype=torch.float64)
        for row in rows.unbind(1):
            h = view.module.cell(row, h)
        nn.functional.cross_entropy(view.module.head(h), y[:, -1].long()).backward()
    logs = seen.pictures["gradient"].numbers["log10 of the norm"]
    assert logs["x"] == pytest.approx(rows.grad[0].norm(dim=-1).log10().tolist(), abs=1e-9)
    assert "h cell" in logs


@pytest.mark.parametrize("job", [("moons", "mlp"), ("moons", "lstm"), ("edges", "cnn"), ("edges", "vit")])
def test_vectors_and_images_that_are_not_read_in_steps_have_nothing_to_say(view_of, job):
    assert Probe()(view_of(f"dataset={job[0]}", f"model={job[1]}")) is None


def test_a_model_without_states_has_the_gradient_of_its_inputs_alone(view_of):
    seen = Probe()(view_of("dataset=pattern", "model=mlp"))
    assert list(seen.pictures) == ["gradient"]
    assert list(seen.texts) == []
    assert set(seen.scalars) == {"first_log10", "last_log10", "decay_log10_per_step"}


@pytest.mark.slow
def test_pictures_are_drawn_from_what_is_written(view_of):
    """Of two layers in both directions not all states can be shown, and the label says so."""
    seen = Probe()(view_of("dataset=edges", "model=lstm", "model.num_layers=2", "model.bidirectional=true"))
    for picture in seen.pictures.values():
        numbers = json.loads(json.dumps(to_plain(picture.numbers), allow_nan=False))
        assert set(render(picture, numbers, "step 0")) == {"png", "svg"}
