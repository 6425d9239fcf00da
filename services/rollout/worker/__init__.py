"""One group, from prompt to verdicts."""
