"""RNN, LSTM and GRU: layers, directions and biases against torch's own modules, by exchange of weights both ways."""

from typing import Any

import pytest
import torch
from contract.combinations import covering
from contract.registry import plugin
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nnexp import DataSpec

DATA = DataSpec(kind="sequence", shape=(9, 3), outputs=2)
PER_STEP = DataSpec(kind="sequence", shape=(9, 3), outputs=2, per_step=True)
SIZE = 5
LENGTHS = torch.tensor([9, 1, 4, 6])
CELLS = {
    "rnn": ("rnn", nn.RNN, {}),
    "rnn of relu": ("rnn", nn.RNN, {"nonlinearity": "relu"}),
    "lstm": ("lstm", nn.LSTM, {}),
    "gru": ("gru", nn.GRU, {}),
}

every_cell = pytest.mark.parametrize("cell", CELLS)
every_depth = pytest.mark.parametrize("num_layers", [1, 2, 3])
with_and_without_bias = pytest.mark.parametrize("bias", [True, False], ids=["biases", "no biases"])
both_paths = pytest.mark.parametrize("fused", [True, False], ids=["fused", "loop"])
# One answer per row in one and both directions, or per step; all rows whole, or of different length.
READINGS = {
    f"{way}, {rows}": (data, both, lengths)
    for way, data, both in (("forward", DATA, False), ("both ways", DATA, True), ("per step", PER_STEP, False))
    for rows, lengths in (("whole", None), ("padded", LENGTHS))
}
PRECISIONS = {"64 bits": (torch.float64, 1e-12), "32 bits": (torch.float32, 1e-6)}
# Any three values of what a layer can be and of how it is read are together in one of the tests.
LAYERS = covering(tuple(CELLS), (1, 2, 3), (True, False), tuple(READINGS), (True, False), tuple(PRECISIONS), strength=3)


def _model(cell: str, data: DataSpec = DATA, **values) -> Any:
    name, _, own = CELLS[cell]
    without = {"forget_bias": None} if name == "lstm" and not values.get("bias", True) else {}
    return plugin("model", name)(data, **{"hidden_size": SIZE, **own, **without, **values})


def _torchs(cell: str, **options) -> nn.RNNBase:
    _, made, own = CELLS[cell]
    return made(3, SIZE, batch_first=True, **own, **options)


@torch.no_grad()
def _drawn_anew(module: nn.Module) -> Any:
    """With every weight and every bias drawn, so that none is zero and none is what it was made with."""
    for p in module.parameters():
        p.copy_(0.4 * torch.randn_like(p))
    assert all(p.all() for p in module.parameters())
    return module


def _read(reference: nn.RNNBase, x: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, T, C) -> (B, T, H or 2H): the states, by packed sequences where rows differ in length."""
    if lengths is None:
        return reference(x)[0]
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(reference(packed)[0], batch_first=True, total_length=x.shape[1])[0]


def _expected(reference: nn.RNNBase, head: nn.Module, x: Tensor, lengths: Tensor | None, per_step: bool) -> Tensor:
    """The head on the last state of each row, of the last layer and all its directions, or on all states."""
    if per_step:
        return head(_read(reference, x, lengths))
    given = x if lengths is None else pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    last = reference(given)[1]
    last = last[0] if isinstance(last, tuple) else last
    return head(torch.cat(list(last[-1 - reference.bidirectional :]), dim=-1))


def _counted(output: Tensor, lengths: Tensor | None, per_step: bool) -> Tensor:
    return output[torch.arange(9) < LENGTHS.unsqueeze(1)] if per_step and lengths is not None else output


def _with_gradients(output: Tensor, x: Tensor, *modules: nn.Module) -> list[Tensor]:
    weighted = (output * torch.linspace(-1, 1, output.numel(), dtype=x.dtype).view(output.shape)).mean()
    return [output.detach(), *torch.autograd.grad(weighted, [x, *(p for m in modules for p in m.parameters())])]


@pytest.mark.parametrize(("cell", "num_layers", "bias", "reading", "fused", "precision"), LAYERS)
def test_outputs_and_gradients_are_torchs(cell, num_layers, bias, reading, fused, precision):
    (data, bidirectional, lengths), (dtype, tolerance) = READINGS[reading], PRECISIONS[precision]
    options = {"num_layers": num_layers, "bias": bias, "bidirectional": bidirectional}
    model = _drawn_anew(_model(cell, data, **options)).to(dtype)
    model.fused = fused
    reference = _torchs(cell, **options).to(dtype)
    reference.load_state_dict(model.core.state_dict())
    x = torch.randn(4, 9, 3, dtype=dtype, requires_grad=True)
    output = _counted(model(x, lengths), lengths, data.per_step)
    expected = _counted(_expected(reference, model.head, x, lengths, data.per_step), lengths, data.per_step)
    given, wanted = _with_gradients(output, x, model), _with_gradients(expected, x, reference, model.head)
    for one, other in zip(given, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@both_paths
@pytest.mark.parametrize("bidirectional", [False, True])
@with_and_without_bias
@every_depth
@every_cell
def test_a_model_takes_the_weights_of_torchs_module(cell, num_layers, bias, bidirectional, fused):
    options = {"num_layers": num_layers, "bias": bias, "bidirectional": bidirectional}
    reference, model = _drawn_anew(_torchs(cell, **options)).double(), _model(cell, **options).double()
    model.fused = fused
    model.core.load_state_dict(reference.state_dict())
    x = torch.randn(4, 9, 3, dtype=torch.float64)
    torch.testing.assert_close(model(x), _expected(reference, model.head, x, None, False), rtol=0, atol=1e-12)


@both_paths
@pytest.mark.parametrize("bidirectional", [False, True])
@every_cell
def test_a_padded_row_gives_what_it_gives_alone(cell, bidirectional, fused):
    model = _drawn_anew(_model(cell, num_layers=2, bidirectional=bidirectional)).double()
    model.fused = fused
    x = torch.randn(4, 9, 3, dtype=torch.float64)
    output = model(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(output[row], model(x[row : row + 1, :length])[0], rtol=0, atol=1e-12)
    assert not torch.allclose(output, model(x))


@both_paths
@every_cell
def test_a_prediction_per_step_depends_on_no_later_step(cell, fused):
    model = _drawn_anew(_model(cell, PER_STEP, num_layers=2))
    model.fused = fused
    x = torch.randn(4, 9, 3)
    changed = x.clone()
    changed[:, 5:] += 1
    assert torch.equal(model(x)[:, :5], model(changed)[:, :5])
    assert (model(x)[:, 5:] != model(changed)[:, 5:]).any(-1).all()


@every_cell
def test_two_directions_on_data_with_a_prediction_per_step_are_refused_with_the_reason(cell):
    with pytest.raises(
        ValueError, match=r"reads the positions that it has to predict\. Set model\.bidirectional=false"
    ):
        _model(cell, PER_STEP, bidirectional=True)


@every_cell
def test_without_biases_there_is_none_anywhere(cell):
    names = dict(_model(cell, num_layers=2, bidirectional=True, bias=False).named_parameters())
    assert [name for name in names if "bias" in name] == []


@every_cell
@every_depth
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_number_of_weights_is_that_of_torchs_module_and_the_head(cell, num_layers, bidirectional):
    options = {"num_layers": num_layers, "bidirectional": bidirectional}
    expected = sum(p.numel() for p in _torchs(cell, **options).parameters()) + 2 * SIZE * (1 + bidirectional) + 2
    assert sum(p.numel() for p in _model(cell, **options).parameters()) == expected


@pytest.mark.parametrize("name", ["rnn", "gru"])
def test_a_model_without_forget_gate_has_no_forget_bias(name):
    with pytest.raises(TypeError, match="forget_bias"):
        plugin("model", name)(DATA, forget_bias=1.0)
