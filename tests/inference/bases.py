"""Tiny bases in the shapes adapters meet: a dense text model, the text model of a wrapper, fused projections."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.models import make_model, make_tokenizer

IMAGE_TOKEN = "<image>"


@dataclass(frozen=True)
class Base:
    """A base as it is served, and as transformers + PEFT train it."""

    served: Path
    text: Path
    """The text model alone, `model.layers.`: the same weights."""


def dense(folder: Path) -> Base:
    """Qwen3, projections apart."""
    model = make_model(folder / "dense")
    return Base(model, model)


def fused(folder: Path) -> Base:
    """Phi-3, whose checkpoints hold qkv_proj and gate_up_proj."""
    import torch
    from transformers import Phi3Config, Phi3ForCausalLM

    tokenizer = make_tokenizer(512)
    config = Phi3Config(**_sizes(tokenizer), tie_word_embeddings=False, original_max_position_embeddings=2048)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Phi3ForCausalLM(config).float().save_pretrained(folder / "fused")
    tokenizer.save_pretrained(folder / "fused")
    return Base(folder / "fused", folder / "fused")


def wrapped(folder: Path) -> Base:
    """PaliGemma: a vision tower beside a Gemma, named as transformers 5 names a wrapper.

    In vLLM 0.32 its module imports without torchvision (those of Qwen-VL, Gemma 3 and LLaVA do not), and like Qwen3-VL
    it ignores an adapter of `model.layers.`.
    """
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import (
        GemmaConfig,
        GemmaForCausalLM,
        PaliGemmaConfig,
        PaliGemmaForConditionalGeneration,
        PaliGemmaProcessor,
        SiglipImageProcessorPil,
        SiglipVisionConfig,
    )

    tokenizer = make_tokenizer(512)
    tokenizer.add_special_tokens({"additional_special_tokens": [IMAGE_TOKEN]})
    text = GemmaConfig(**_sizes(tokenizer), head_dim=32)
    vision = SiglipVisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=16
    )
    image = tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)
    config = PaliGemmaConfig(text_config=text, vision_config=vision, image_token_index=image, projection_dim=64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = PaliGemmaForConditionalGeneration(config).float()
    # a config of its own: the wrapper makes its text model's attention bidirectional, vLLM serves it causal
    alone = GemmaForCausalLM(GemmaConfig(**_sizes(tokenizer), head_dim=32)).float()
    alone.model.load_state_dict(model.model.language_model.state_dict())
    alone.save_pretrained(folder / "text")
    tokenizer.save_pretrained(folder / "text")
    model.save_pretrained(folder / "wrapped")
    path = folder / "wrapped" / "model.safetensors"
    save_file(rename(load_file(path), {"language_model.model.": "model.language_model."}), path, {"format": "pt"})
    images = SiglipImageProcessorPil(size={"height": 32, "width": 32})
    images.image_seq_length = 4
    PaliGemmaProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder / "wrapped")
    return Base(folder / "wrapped", folder / "text")


def rename(tensors: Mapping[str, Any], renames: Mapping[str, str]) -> dict[str, Any]:
    """Tensors whose names have each key replaced by its value."""
    found = {}
    for name, tensor in tensors.items():
        for old, new in renames.items():
            name = name.replace(old, new)
        found[name] = tensor
    return found


def _sizes(tokenizer: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 2048,
        "initializer_range": 0.1,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
