"""Acceptance A1 of issue 6: what stock vLLM and what the gateway do with adapters in every layout, and broken ones.

    python .ci/adapter_matrix.py

Three tiny bases (dense, the text model of a multimodal wrapper, fused projections), a real vLLM for each; minutes.
Prints a table for each base. Exits 1 when |served - PEFT| of a good adapter is over a tenth of |base - PEFT|, or a
broken one reaches vLLM.
"""

import sys

import pytest

TEST = "tests/inference/test_adapter_matrix.py"

if __name__ == "__main__":
    sys.exit(pytest.main(["-q", "-m", "slow", "-p", "no:cacheprovider", TEST]))
