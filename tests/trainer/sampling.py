"""An engine for tests: transformers' own `generate`, with the exact log-probabilities of what it drew."""

from typing import Any

import torch
from transformers import AutoTokenizer


@torch.no_grad()
def draw(
    model: Any,
    prompt_ids: list[int],
    k: int,
    max_tokens: int,
    eos_id: int,
    seed: int,
    *,
    temperature: float = 1.0,
    ends: bool = True,
) -> list[tuple[list[int], list[float]]]:
    """`k` replies without top-k or top-p: token ids, natural-log probabilities under the sampling distribution.

    A reply that the budget would cut gets the end id, with the probability that the policy gives it, if it `ends`.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        drawn = model.generate(
            input_ids=torch.tensor([prompt_ids] * k),
            attention_mask=torch.ones(k, len(prompt_ids), dtype=torch.long),
            do_sample=True,
            top_k=0,
            top_p=1.0,
            temperature=temperature,
            max_new_tokens=max_tokens,
            eos_token_id=eos_id,
            forced_eos_token_id=eos_id if ends else None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
    logprobs = (torch.stack(drawn.logits, dim=1) / temperature).log_softmax(-1)
    replies = []
    for row, sequence in enumerate(drawn.sequences[:, len(prompt_ids) :].tolist()):
        length = sequence.index(eos_id) + 1 if eos_id in sequence else len(sequence)
        ids = sequence[:length]
        replies.append((ids, [logprobs[row, i, token].item() for i, token in enumerate(ids)]))
    return replies


def prompt_of(tokenizer: Any, task_id: str) -> list[int]:
    """A chat prompt that names the task."""
    messages = [{"role": "user", "content": f"how many orders for {task_id}"}]
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"])


def load_tokenizer(model: Any) -> Any:
    """The tokenizer of a model folder."""
    return AutoTokenizer.from_pretrained(model)
