"""What stops a run, or warns: rules over what it measured, and the watch that applies them."""
