"""The trainer: a runs API, and the Ray job that trains a LoRA adapter with GRPO on execution rewards."""
