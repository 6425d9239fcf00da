"""Rows of like length share a forward: nothing but the padding may differ."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from services.trainer.learning.lengths import by_length, like_lengths, whole

PROMPT, COMPLETION = 6, 9


def mask_of(lengths: list[tuple[int, int]]) -> torch.Tensor:
    """(prompt tokens, completion tokens) a row; prompts are padded on the left, completions on the right."""
    rows = [[0] * (PROMPT - p) + [1] * p + [1] * c + [0] * (COMPLETION - c) for p, c in lengths]
    return torch.tensor(rows)


ROWS = st.lists(st.tuples(st.integers(1, PROMPT), st.integers(0, COMPLETION)), min_size=1, max_size=12)


@given(ROWS, st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_every_row_is_in_one_forward_that_holds_all_its_tokens(lengths: list[tuple[int, int]], size: int) -> None:
    mask = mask_of(lengths)
    seen: list[int] = []
    for rows, first, end in like_lengths(mask, COMPLETION, size):
        assert len(rows) <= size
        assert first < PROMPT < end
        assert int(mask[rows][:, first:end].sum()) == int(mask[rows].sum())
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(lengths)))


@given(ROWS, st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_the_parts_come_back_in_the_first_order_and_width(lengths: list[tuple[int, int]], size: int) -> None:
    mask = mask_of(lengths)
    values = torch.arange(mask.numel()).reshape(mask.shape) * mask
    parts, order = [], []
    for rows, _, end in like_lengths(mask, COMPLETION, size):
        parts.append(values[rows, PROMPT:end])
        order.append(rows)
    assert torch.equal(whole(parts, order, COMPLETION), values[:, PROMPT:])


def test_a_batch_is_ordered_by_completion_length_all_columns_alike() -> None:
    mask = mask_of([(1, 5), (2, 2), (3, 9)])[:, PROMPT:]
    batch = by_length(
        {"completion_mask": mask, "names": ["five", "two", "nine"], "count": torch.tensor(3), "images": None}
    )
    assert batch["names"] == ["two", "five", "nine"]
    assert batch["completion_mask"].sum(dim=1).tolist() == [2, 5, 9]
    assert (int(batch["count"]), batch["images"]) == (3, None)


@pytest.fixture
def learner(tmp_path: Path) -> Any:
    from services.trainer.learning.learner import build_learner
    from tests.models import make_model
    from tests.trainer.test_learner import Sampled, run_config

    torch.set_num_threads(1)
    model = make_model(tmp_path / "tiny")
    return build_learner(run_config(model), tmp_path, [["a"] * 4], Sampled(model), lambda: None, [])


def test_log_probabilities_entropies_and_gradients_are_those_of_one_padded_forward(learner: Any) -> None:
    from trl import GRPOTrainer

    generator = torch.Generator().manual_seed(0)
    mask = mask_of([(6, 9), (1, 1), (4, 3), (5, 0), (2, 7), (6, 2)])
    ids = torch.randint(10, 200, mask.shape, generator=generator)
    counted = mask[:, PROMPT:].bool()
    found = []
    for forward in (
        lambda: learner._get_per_token_logps_and_entropies(
            learner.model, ids, mask, COMPLETION, batch_size=2, compute_entropy=True, pixel_values=None
        ),
        lambda: GRPOTrainer._get_per_token_logps_and_entropies(
            learner, learner.model, ids, mask, COMPLETION, compute_entropy=True
        ),
    ):
        learner.model.zero_grad()
        logps, entropies, auxiliary = forward()
        assert auxiliary is None
        torch.autograd.backward(logps[counted].sum())
        gradient = torch.cat([p.grad.flatten() for p in learner.model.parameters() if p.grad is not None])
        found.append((logps[counted].detach(), entropies[counted].detach(), gradient.clone()))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
