"""LoRA arithmetic for vLLM's CPU build: rows grouped by adapter, then plain matrix products.

Stock vLLM 0.32 has three faults here (tests/inference/test_generation.py holds this class to the last two):
- it copies the adapter's whole weight once per token before it multiplies;
- in a batch that mixes base and adapters, index -1 ("no adapter") picks the last slot: base answers as that adapter;
- `prompt_logprobs` in a batch of several requests ends the engine: the logits step expects one row per request.
`services.inference.engine.cpu_worker` puts this class in the stock one's place.
"""

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

Rows = torch.Tensor | slice


class GroupedLora(PunicaWrapperCPU):  # type: ignore[misc]  # vLLM is not type-checked here
    """`y[rows] += x[rows] @ A[slot].T @ B[slot].T * scale` for each adapter's rows of the batch.

    Stacked weights are (slots, 1, out, in), as vLLM keeps them. Rows without an adapter are left alone.
    """

    _groups: list[tuple[int, Rows]]

    def update_metadata(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # vLLM's own signature
        """Once per batch: which rows belong to which slot."""
        super().update_metadata(*args, **kwargs)
        self._groups = group_rows(self.token_lora_indices)

    def add_shrink(
        self,
        y: tuple[torch.Tensor, ...] | torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: tuple[torch.Tensor, ...],
        scale: float,
        **kwargs: object,
    ) -> None:
        """`y[i][rows] += scale * x[rows] @ A[i][slot].T`."""
        x = x.view(-1, x.shape[-1])
        for index, stacked in enumerate(lora_a_stacked):
            target = y[index].view(-1, y[index].shape[-1])
            for slot, rows in self._groups:
                product = x[rows].to(target.dtype) @ stacked[slot, 0].to(target.dtype).T
                target[rows] += product if scale == 1.0 else product * scale

    def add_expand(
        self,
        y: torch.Tensor,
        x: tuple[torch.Tensor, ...] | torch.Tensor,
        lora_b_stacked: tuple[torch.Tensor, ...],
        output_slices: tuple[int, ...],
        offset_start: int = 0,
        add_inputs: bool = True,
        **kwargs: object,
    ) -> None:
        """`y[rows, slice i] += x[i][rows] @ B[i][slot].T`, slices side by side from `offset_start`."""
        y = y.view(-1, y.shape[-1])
        start = offset_start
        for index, (stacked, width) in enumerate(zip(lora_b_stacked, output_slices, strict=True)):
            for slot, rows in self._groups:
                y[rows, start : start + width] += (x[index][rows] @ stacked[slot, 0].to(x[index].dtype).T).to(y.dtype)
            start += width

    def add_lora_logits(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: torch.Tensor,
        lora_b_stacked: torch.Tensor,
        scale: float,
        **kwargs: object,
    ) -> None:
        """Nothing to add: the gateway refuses adapters of lm_head. Raises NotImplementedError if one got in."""
        if lora_a_stacked.any():
            raise NotImplementedError("an adapter of lm_head was loaded past the gateway; this engine cannot serve it")


def group_rows(indices: torch.Tensor) -> list[tuple[int, Rows]]:
    """Slot and rows of each adapter in a batch; `indices` holds a slot per row, -1 for none.

    One adapter for the whole batch, the usual case, is a slice: no copy.
    """
    slots: list[int] = sorted(set(indices.tolist()))
    if len(slots) == 1:
        return [] if slots[0] < 0 else [(slots[0], slice(None, len(indices)))]
    return [(slot, (indices == slot).nonzero().squeeze(1)) for slot in slots if slot >= 0]
