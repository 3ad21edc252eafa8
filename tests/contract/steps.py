"""More of what a model must keep: on rows of different length, in time, and what only recurrent models have."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from contract.rows import close, inputs, make, stack
from nnexp.data.data_spec import DataSpec
from nnexp.data.views import valid_positions
from nnexp.training.precision import precision_context


def in_double(model: nn.Module, x: Tensor, *lengths: Tensor) -> Tensor:
    with precision_context(64, torch.device("cpu")), torch.no_grad():
        return model.double()(x.double() if x.is_floating_point() else x, *lengths)


def _exchange(x: Tensor, other: Tensor, at: Tensor, data: DataSpec) -> Tensor:
    """x (B, *data.shape) with another's content where `at` (B, T) says so; a position of an image is a row of it."""
    shape = (len(at), 1, -1, 1) if data.kind == "image" else (len(at), -1, *[1] * (len(data.shape) - 1))
    return torch.where(at.view(shape), other, x)


def padded(data: DataSpec) -> tuple[Tensor, Tensor, Tensor]:
    """The same rows twice, with other content after their lengths; and these."""
    size = data.max_length
    lengths = torch.tensor([1, size, size // 2, size - 1, 2]).clamp(min=1)
    x, other = inputs(data, 5), inputs(data, 5)
    other = other if data.kind == "tokens" else 100 * other
    changed = _exchange(x, other, ~valid_positions(lengths, size), data)
    assert not torch.equal(changed, x)
    return x, changed, lengths


def _counted(output: Tensor, data: DataSpec, lengths: Tensor) -> Tensor:
    """The outputs of positions that are not padding, or of the rows."""
    return output[..., valid_positions(lengths, data.max_length), :] if data.per_step else output


def padding_moves_no_output(cls, data, **values):
    model, (x, changed, lengths) = make(cls, data, **values).eval(), padded(data)
    outputs = [model(rows, lengths) for rows in (x, changed)]
    assert torch.equal(*(_counted(output, data, lengths) for output in outputs))
    assert all(output.isfinite().all() for output in outputs)


def padding_moves_no_output_of_models_stacked(cls, data, **values):
    models, stacked = stack(cls, data, **values)
    x, changed, lengths = padded(data)

    def together(rows: Tensor) -> Tensor:
        output = vmap(lambda state: functional_call(models[0], state, (rows, lengths)))(stacked)
        return _counted(output, data, lengths)

    close(together(changed), together(x))
    close(together(x), torch.stack([_counted(model(x, lengths), data, lengths) for model in models]))


def the_fused_path_gives_what_the_loop_gives(cls, data, **values):
    model, (x, _, lengths) = make(cls, data, **values).eval(), padded(data)
    fused = [in_double(model, x), _counted(in_double(model, x, lengths), data, lengths)]
    assert model.fused
    model.fused = False
    for expected, *given in zip(fused, ([], [lengths]), strict=True):
        output = in_double(model, x, *given[0])
        close(_counted(output, data, lengths) if given[0] else output, expected, 1e-12)


def no_output_depends_on_a_later_position(cls, data, **values):
    """Every position of three rows is changed, each in a copy of its own."""
    data = replace(data, per_step=True)
    model, x, size = make(cls, data, **values).eval(), inputs(data, 3), data.max_length
    copies, at = x.repeat(size, *[1] * len(data.shape)), torch.eye(size, dtype=torch.bool).repeat_interleave(3, 0)
    other = (copies + 1) % data.vocab if data.kind == "tokens" else copies + torch.randn_like(copies)
    output = in_double(model, _exchange(copies, other, at, data)).unflatten(0, (size, 3))
    moved = (output - in_double(model, x)).abs().amax((1, 3))  # by the position that changed, and that of the output
    assert (moved.tril(-1) < 1e-10).all(), f"outputs before the change move: {moved.tril(-1).nonzero().tolist()}"
    assert (moved.diagonal() > 1e-10).all(), "an output must depend on its own position"


def two_directions_are_refused_per_step(cls, data, **values):
    data = replace(data, per_step=True)
    with pytest.raises(ValueError, match=r"bidirectional.*Set model\.bidirectional=false"):
        make(cls, data, **{**values, "bidirectional": True})


def the_forget_bias_counts_once(cls, data, **values):
    """With PyTorch's gates in the order (i, f, g, o) and two biases for each."""
    model = make(cls, data, **{**values, "forget_bias": 2.5})
    layers = [module for module in model.modules() if isinstance(module, nn.LSTM)]
    assert layers
    for lstm in layers:
        biases = dict(lstm.named_parameters())
        names = [name for name in biases if name.startswith("bias_ih")]
        assert len(names) == lstm.num_layers * (1 + lstm.bidirectional)
        for name in names:
            both = biases[name] + biases[name.replace("_ih_", "_hh_")]
            assert both.chunk(4)[1].tolist() == [2.5] * lstm.hidden_size, name
