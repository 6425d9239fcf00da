"""Supervised runs: right replies as examples, TRL's SFT trainer in the same job as GRPO's, adapters served alike."""
