"""What stands in for torch's functions in a stack gives what they give."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from nnexp.base.errors import NnexpError
from nnexp.stacking.vmap_rules import Rules, check_batch_rules

D = torch.float64


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 2, 2), (3, 1, 2)])
def test_a_convolution_and_its_gradients_are_torchs(axes: int, stride: int, padding: int, dilation: int) -> None:
    torch.manual_seed(0)
    layer = getattr(nn, f"Conv{axes}d")(2, 3, (3, 2, 3)[:axes], stride, padding, dilation).to(D)
    x = torch.randn(4, 2, *(9, 8, 7)[:axes], dtype=D, requires_grad=True)
    tensors = [x, *layer.parameters()]
    expected = layer(x)
    with Rules():
        found = layer(x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for mine, theirs in zip(*(torch.autograd.grad(y.sin().sum(), tensors) for y in (found, expected)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.BatchNorm2d, nn.InstanceNorm1d, nn.InstanceNorm2d])
@pytest.mark.parametrize("affine", [True, False])
def test_normalisations_and_their_running_means_are_torchs(kind: type[nn.Module], affine: bool) -> None:
    torch.manual_seed(0)
    torchs, ours = (kind(3, affine=affine).to(D) for _ in range(2))
    shape = (5, 3, 4, 6) if kind.__name__.endswith("2d") else (5, 3, 4)
    for is_training in (True, True, False):
        torchs.train(is_training)
        ours.train(is_training)
        x = 2 + 3 * torch.randn(shape, dtype=D)
        with Rules():
            found = ours(x)
        torch.testing.assert_close(found, torchs(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.state_dict(), torchs.state_dict(), rtol=1e-12, atol=1e-12)


def test_what_has_no_rule_is_refused() -> None:
    x, weight = torch.randn(2, 4, 9), torch.randn(4, 2, 3)
    with Rules(), pytest.raises(NnexpError, match="have no rule"):
        F.conv1d(x, weight, groups=2)
    with pytest.raises(NnexpError, match="rounding of torch's convolution depends on the number of lanes"):
        check_batch_rules(make_fx(lambda x: F.conv_transpose1d(x, torch.ones(4, 2, 3)))(x))
    rows = torch.tensor([0, 1])
    with pytest.raises(NnexpError, match="padding_idx"):
        check_batch_rules(make_fx(lambda w: F.embedding(rows, w, padding_idx=0))(torch.randn(3, 2)))
    check_batch_rules(make_fx(lambda w: F.embedding(rows, w))(torch.randn(3, 2)))
