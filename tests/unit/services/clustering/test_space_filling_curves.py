"""Curves through a grid: every cell once, neighbours near each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.services.clustering.space_filling_curves import MOST_BITS, Cells, hilbert, z_order

GRIDS = st.tuples(st.integers(1, 6), st.integers(1, 12)).filter(lambda grid: grid[0] * grid[1] <= 12)


def all_cells(dimensions: int, bits: int) -> Cells:
    found = list(itertools.product(range(2**bits), repeat=dimensions))
    return np.array(found, np.uint64).T


@given(GRIDS)
def test_each_cell_has_a_place_of_its_own(grid: tuple[int, int]) -> None:
    cells = all_cells(*grid)
    for curve in (z_order, hilbert):
        assert sorted(curve(cells, grid[1]).tolist()) == list(range(cells.shape[1]))


@given(GRIDS)
def test_consecutive_places_on_the_hilbert_curve_are_neighbours(grid: tuple[int, int]) -> None:
    cells = all_cells(*grid)
    path = cells[:, np.argsort(hilbert(cells, grid[1]))].astype(np.int64)
    assert (np.abs(np.diff(path, axis=1)).sum(axis=0) == 1).all()


@st.composite
def dominated(draw: st.DrawFn) -> tuple[int, list[int], list[int]]:
    dimensions = draw(st.integers(1, 16))
    bits = draw(st.integers(1, min(32, MOST_BITS // dimensions)))
    pairs = draw(
        st.lists(
            st.tuples(st.integers(0, 2**bits - 1), st.integers(0, 2**bits - 1)),
            min_size=dimensions,
            max_size=dimensions,
        )
    )
    return bits, [min(pair) for pair in pairs], [max(pair) for pair in pairs]


@given(dominated())
def test_the_z_order_is_monotone_and_interleaves_bits(drawn: tuple[int, list[int], list[int]]) -> None:
    bits, low, high = drawn
    below, above = z_order(np.array([low, high], np.uint64).T, bits).tolist()
    assert (below < above) == (low != high)
    by_bits = itertools.product(reversed(range(bits)), high)
    assert above == int("".join(str(value >> bit & 1) for bit, value in by_bits), 2)


@pytest.mark.parametrize("curve", [z_order, hilbert])
def test_a_grid_that_is_too_large(curve: object) -> None:
    with pytest.raises(ValueError, match="4 dimensions of 16 bits are more than 63 bits"):
        curve(np.zeros((4, 1), np.uint64), 16)  # type: ignore[operator]
