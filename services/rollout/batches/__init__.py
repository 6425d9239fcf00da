"""Training batches: exactly once per (run, step), fenced by attempt, waiting for no straggler."""
