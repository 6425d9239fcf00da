"""Tiny random models and adapters for tests: a Qwen3 folder with its own tokenizer and chat template, and PEFT LoRAs.

Nothing is downloaded. Models are float32 and untrained: their replies are noise, their log-probabilities are exact.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LINEAR_LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

_WORDS = (
    "select from where group by order limit join on having count sum avg min max distinct with as and or not null "
    "customers orders products items price total name city country date month year status quantity category "
    "how many which what is the of for each all per were placed in between highest lowest average number list show"
)


def make_model(
    folder: Path,
    *,
    hidden: int = 64,
    layers: int = 2,
    mlp: int = 128,
    head_dim: int = 32,
    heads: int | None = None,
    vocabulary: int = 512,
    seed: int = 0,
) -> Path:
    """Write a random Qwen3ForCausalLM (float32, tied embeddings) with its tokenizer into `folder`; returns it.

    The defaults make 0.1 M parameters; `hidden=192, layers=4, mlp=512, head_dim=48, vocabulary=1024` is as large as
    the small policy.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = make_tokenizer(vocabulary)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads or hidden // head_dim,
        num_key_value_heads=max(1, (heads or hidden // head_dim) // 2),
        head_dim=head_dim,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.1,  # wide enough that the logits are far from uniform
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config).float()
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_tokenizer(vocabulary: int) -> Any:
    """A byte-level BPE tokenizer of at most `vocabulary` tokens with a ChatML template (end of turn: `<|im_end|>`)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    draw = random.Random(0)
    words = _WORDS.split()
    corpus = [" ".join(draw.choices(words, k=12)) for _ in range(400)]
    corpus += [line.upper() for line in corpus[:100]]
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=SPECIAL_TOKENS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_adapter(
    model: Path,
    folder: Path,
    *,
    rank: int = 8,
    scale: float = 0.05,
    targets: Sequence[str] = tuple(LINEAR_LAYERS),
    seed: int = 1,
    **config: Any,
) -> Path:
    """Save a PEFT LoRA of `model` into `folder`; B is drawn with standard deviation `scale` (0: B stays zero).

    `config` goes to `peft.LoraConfig`, e.g. `use_dora=True`.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        settings: dict[str, Any] = {"lora_alpha": 2 * rank, "target_modules": list(targets), **config}
        adapted = get_peft_model(base, LoraConfig(r=rank, **settings))
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if "lora_B" in name and scale > 0:
                    parameter.normal_(0.0, scale)
        adapted.save_pretrained(folder)
    return folder


def token_logprobs(model: Path, sequences: Sequence[Sequence[int]], adapter: Path | None = None) -> list[list[float]]:
    """As `logprobs_of`, of a model in a folder and an adapter on it."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    policy: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if adapter is not None:
        policy = PeftModel.from_pretrained(policy, str(adapter))
    return logprobs_of(policy.eval(), sequences)


def logprobs_of(policy: Any, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
    """Teacher-forced log-probabilities by transformers (+ PEFT): for each sequence, of tokens 1 to the end."""
    import torch

    found = []
    with torch.no_grad():
        for sequence in sequences:
            ids = torch.tensor([list(sequence)])
            logprobs = policy(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
            found.append(logprobs.gather(-1, ids[0, 1:, None]).squeeze(-1).tolist())
    return found


def rename_tensors(adapter: Path, destination: Path, renames: dict[str, str]) -> Path:
    """A copy of an adapter whose tensor names have each key replaced by its value: what a careless export makes."""
    from safetensors.numpy import load_file, save_file

    destination.mkdir(parents=True)
    tensors = load_file(adapter / "adapter_model.safetensors")
    renamed = {}
    for name, tensor in tensors.items():
        for old, new in renames.items():
            name = name.replace(old, new)
        renamed[name] = tensor
    save_file(renamed, destination / "adapter_model.safetensors")
    config = json.loads((adapter / "adapter_config.json").read_text())
    (destination / "adapter_config.json").write_text(json.dumps(config))
    return destination
