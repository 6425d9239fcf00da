"""The import check of an image: everything its container will need is there. Arguments: the image, further modules."""

import importlib
import sys

MODULES = {
    "verifier": ["services.verifier.__main__", "services.verifier.sandbox.pod_server"],
    "author": ["services.author.__main__", "shared.database", "anthropic", "openai"],
    "rollout": ["services.rollout.__main__", "services.rollout.ray_service"],
    "trainer": [
        "services.trainer.app",
        "services.trainer.job",
        "services.trainer.job.worker",
        "services.rollout.ray_service",
        "transformers.models.qwen3.modeling_qwen3",
        "transformers.models.qwen3_5.modeling_qwen3_5",
        "s3fs",
    ],
    "inference": ["services.inference.__main__", "services.inference.engine.model_copy", "huggingface_hub", "s3fs"],
    "engine": [
        "services.inference.engine",
        "vllm.entrypoints.openai.api_server",
        "transformers.models.qwen3.modeling_qwen3",
        "transformers.models.qwen3_5.modeling_qwen3_5",
    ],
}

modules = [*MODULES[sys.argv[1]], *sys.argv[2:]]
for module in modules:
    importlib.import_module(module)
print(f"{sys.argv[1]}: {len(modules)} imports work")
