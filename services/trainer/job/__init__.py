"""One attempt of a run, inside its Ray job: draw samples, learn, checkpoint, publish, record."""
