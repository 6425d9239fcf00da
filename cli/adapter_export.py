"""An adapter as a folder for others: its files, a model card, and a push to a hub."""

import io
import json
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

from cli.context import UsageError
from cli.render import interval
from cli.stack.stack import StackError
from shared.contracts.inference import Adapter, Layout
from shared.contracts.measuring import Delta
from shared.contracts.rollout import Sampling

SMALLEST_VLLM_RANK = 8
"""vLLM takes no smaller limit."""


@dataclass(frozen=True)
class Measured:
    """What the adapter gains, and the sampling that shows how it was measured."""

    delta: Delta
    sampling: Sampling


def unpack(tar: bytes, folder: Path) -> int:
    """Write the tar's files into `folder`; the adapter's rank."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        archive.extractall(folder, filter="data")
    return int(json.loads((folder / "adapter_config.json").read_text())["r"])


def write_card(folder: Path, card: str) -> None:
    """As README.md, where a hub looks for it."""
    (folder / "README.md").write_text(card)


def model_card(adapter: Adapter, model: str, layout: Layout, rank: int, measured: Measured | None) -> str:
    """Markdown with the front matter that hubs read."""
    probe = adapter.probe
    proof = (
        "not measured"
        if probe is None
        else f"served and trainer differ by {probe.served_minus_publisher:.2e} nats a token, where base and trainer "
        f"differ by {probe.base_minus_publisher:.2e} (means over {probe.tokens} tokens)"
    )
    return f"""---
base_model: {model or adapter.base}
library_name: peft
pipeline_tag: text-generation
tags: [lora, text-to-sql, sqlclimb]
---

# {adapter.name}

A LoRA adapter for text-to-SQL on one team's database, trained by sqlclimb with an execution reward.

| | |
|---|---|
| base | `{model or adapter.base}` |
| run, step | `{adapter.run_id}`, {adapter.step} |
| digest of the published tensors | `{adapter.digest}` |
| layout | `{layout}` |
| served as trained | {proof} |

## Gain

{_gain(measured)}
## Loading

{_LOADING[layout].format(model=model or adapter.base, name=adapter.name, rank=max(rank, SMALLEST_VLLM_RANK))}"""


def _gain(measured: Measured | None) -> str:
    if measured is None:
        return "Not measured: there is no evaluation of the base and of this adapter on the same tasks.\n"
    delta, request = measured.delta, measured.sampling.request
    rows = "".join(
        f"| {line.slice} | {line.metric} | {line.tasks} | {line.before:.3f} | {line.after:.3f} "
        f"| {interval(line.delta, signed=True)} | {line.p_value:.4f} |\n"
        for line in delta.lines
    )
    parameters, thinking = request.parameters, "on" if request.regime.thinking else "off"
    return f"""**{delta.verdict}**: {delta.sentence}

| slice | metric | tasks | {delta.before_policy} | {delta.after_policy} | delta [95 %] | p |
|---|---|---|---|---|---|---|
{rows}
How it was measured, paired by task:

- domain `{request.domain}`, split `{request.split}`, task set `{measured.sampling.task_set_digest[:16]}`
- k {parameters.k}, temperature {parameters.temperature}, top_p {parameters.top_p}, {parameters.max_tokens} reply tokens
- prompt `{request.regime.prompt}` (`{measured.sampling.prompt_hash[:16]}`), thinking {thinking}
- comparison profile `{request.profile}`; the smallest effect these tasks can detect is ±{delta.detectable_effect:.3f}
- samplings {", ".join(delta.before)} -> {", ".join(delta.after)}
"""


_LOADING = {
    Layout.PEFT: """```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{model}"), "<this folder>")
```
""",
    Layout.VLLM: """```sh
vllm serve {model} --enable-lora --max-lora-rank {rank} --lora-modules {name}=<this folder>
```
""",
}


def push_folder(folder: Path, repository: str) -> str:
    """Upload to a model repository of the hub at HF_ENDPOINT; the commit's address. Raises UsageError, StackError."""
    token = os.environ.get("HF_TOKEN")
    if not token:
        raise UsageError("--push needs a token of the hub in HF_TOKEN; the folder was written")
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise UsageError(
            "--push needs huggingface_hub: `pip install huggingface_hub`; the folder was written"
        ) from error
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=token)
    try:
        api.create_repo(repository, private=True, exist_ok=True)
        return str(api.upload_folder(repo_id=repository, folder_path=folder, commit_message=f"{folder.name}"))
    except Exception as error:  # of the hub's client, of the HTTP library it has this year, of a bad name
        raise StackError(f"--push {repository}: {error}; the folder was written") from error
