"""How a run ends early: sentences for people, no stack traces."""


class RunFailed(Exception):
    """The run cannot go on. The message says what happened, what was kept and what to do."""


class Fenced(RunFailed):
    """A newer attempt of this run has started: this one must not write any more."""
