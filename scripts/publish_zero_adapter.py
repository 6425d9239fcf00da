"""Publish an adapter whose B is zero for the stack's base, as a control: sampled, it must read no change.

python scripts/publish_zero_adapter.py RUN      # then sample --policy RUN@0
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from cli.context import Connection
from shared.artifacts import adapter_digest, publish_folder
from shared.contracts.inference import AdapterKind, AdapterRequest, Probe, ProbeSequence
from shared.ids import served_name

PROBE_TEXTS = ("SELECT name FROM products", "SELECT count(*) FROM orders WHERE total > 10")


def probe(model: torch.nn.Module, tokenizer: "AutoTokenizer") -> Probe:
    """Teacher-forced log-probabilities of fixed texts under the model as it stands."""
    sequences = []
    for text in PROBE_TEXTS:
        ids = tokenizer(text, return_tensors="pt").input_ids
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, :-1].float()
        logprobs = torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0]
        sequences.append(ProbeSequence(token_ids=ids[0].tolist(), start=1, logprobs=logprobs.tolist()))
    return Probe(sequences=sequences)


async def publish(run_id: str) -> None:
    """Make, store and publish it."""
    connection = Connection()
    served = connection.model()
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(served.path, dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        digest = adapter_digest(Path(folder))
        name = served_name(run_id, 0, digest)
        uri = publish_folder(Path(folder), connection.home.artifacts.as_uri(), "runs", run_id, "adapters", name)
    request = AdapterRequest(
        uri=uri,
        base=served.served_name,
        digest=digest,
        kind=AdapterKind.CONTROL,
        probe=probe(model.eval(), AutoTokenizer.from_pretrained(served.path)),
    )
    async with connection.inference() as client:
        adapter = await client.publish(name, request)
    print(f"{adapter.name}: {adapter.state}, {adapter.probe}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    asyncio.run(publish(sys.argv[1]))
