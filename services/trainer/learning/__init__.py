"""What happens to a batch: TRL's trainer as we wire it, the shared prompt, padding, agreement with the engine."""
