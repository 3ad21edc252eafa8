"""Charts that put much into one image, and the numbers that they are drawn from."""

import math
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from nnexp.plotting.images import MIN_TILE, level_line, mosaic, regions
from nnexp.plotting.rounding import rounded
from nnexp.registry.observation import to_plain


def test_a_mosaic_has_each_pixel_of_each_image_at_its_place_and_gaps_between():
    images: list[Any] = [[[[1.0, 2.0], [3.0, None]], [[5.0, 6.0], [7.0, 8.0]]], [[[9.0, 10.0], [11.0, 12.0]]]]
    shown = mosaic(Figure().subplots(), images).get_array().filled(math.nan)
    side, half = MIN_TILE, MIN_TILE // 2  # of an image that is magnified, of one of its pixels
    assert shown.shape == (2 * side + 1, 2 * side + 1)
    places = (0, half, side + 1, side + 1 + half)
    corners = torch.tensor([[shown[row, column] for column in places] for row in places])
    nan = math.nan
    expected = [[1, 2, 5, 6], [3, nan, 7, 8], [9, 10, nan, nan], [11, 12, nan, nan]]
    torch.testing.assert_close(corners, torch.tensor(expected, dtype=corners.dtype), equal_nan=True)
    assert math.isnan(shown[0, side])
    assert math.isnan(shown[side, 0])


def test_a_mosaic_names_its_rows_and_columns_at_their_middles():
    axes = Figure().subplots()
    mosaic(axes, [[[[0.0] * 30] * 30] * 3], column_names=["a", "b", "c"])
    assert list(axes.get_xticks()) == [14.5, 45.5, 76.5]


def test_no_line_is_drawn_where_the_level_is_not_reached():
    axes = Figure().subplots()
    level_line(axes, [[0.0, 0.2], [None, 0.4]], 0.5, (0, 1, 0, 1))
    level_line(axes, [[None, None], [None, None]], 0.5, (0, 1, 0, 1))
    assert not axes.collections


def test_a_region_is_white_where_nothing_is_known():
    axes = Figure().subplots()
    regions(axes, [[0, 1], [None, 2]], [[1.0, 0.0], [None, 0.5]], (0, 1, 0, 1))
    pixels: Any = axes.images[0].get_array()
    assert pixels[0, 1].tolist() == pixels[1, 0].tolist() == [255, 255, 255]
    assert pixels[0, 0].tolist() != pixels[1, 1].tolist()


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_numbers_are_rounded_to_digits_of_the_largest(scale):
    given = rounded(torch.tensor([0.123456, -0.98764, math.nan, math.inf], dtype=torch.float64) * scale)
    expected = torch.tensor([0.1235, -0.9876, math.nan, math.inf], dtype=torch.float64) * scale
    torch.testing.assert_close(given, expected, rtol=1e-12, atol=0, equal_nan=True)
    assert to_plain(given)[2:] == [None, None]


def test_nothing_and_zeros_are_rounded_to_themselves():
    assert rounded(torch.empty(0)).tolist() == []
    assert rounded(torch.zeros(2)).tolist() == [0.0, 0.0]
