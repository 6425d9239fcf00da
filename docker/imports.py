"""The import check of an image: everything its container will need is there."""

import importlib
import sys

MODULES = {
    "author": ["services.author.__main__", "anthropic", "openai"],
    "rollout": ["services.rollout.__main__", "services.rollout.ray_service"],
    "trainer": [
        "services.trainer.app",
        "services.trainer.job",
        "services.trainer.job.worker",
        "services.rollout.ray_service",
    ],
    "inference": ["services.inference.__main__", "services.inference.engine.model_copy", "huggingface_hub", "s3fs"],
    "engine": ["services.inference.engine", "vllm", "transformers.models.qwen3"],
}

for module in MODULES[sys.argv[1]]:
    importlib.import_module(module)
print(f"{sys.argv[1]}: {len(MODULES[sys.argv[1]])} imports work")
