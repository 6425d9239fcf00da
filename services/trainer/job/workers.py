"""Several training workers, one voice: the first one samples, publishes and records, the others follow.

What it does travels to all of them, also its failure and its wish to stop: else they would wait for it forever.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

Result = TypeVar("Result")


def by_first(work: Callable[[], Result]) -> Result:
    """The result of `work`, done by the first worker once all are here; all raise what it raised."""
    workers = PartialState()
    if workers.num_processes == 1:
        return work()
    workers.wait_for_everyone()
    outcome: list[Any] = [None, None]
    if workers.is_main_process:
        try:
            outcome[0] = work()
        except Exception as error:  # raised below, by all workers
            outcome[1] = error
    broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    result: Result = outcome[0]
    return result


def rollout_by_first(
    rollout: Callable[[list[str], Any], dict[str, Any]],
) -> Callable[[list[str], Any], dict[str, Any]]:
    """A rollout function that asks for the whole step's samples once and gives each worker those of its prompts."""

    def sample(prompts: list[str], learner: Any) -> dict[str, Any]:
        everyones = gather_object(prompts)  # in rank order, as TRL deals them out
        columns = by_first(lambda: rollout(everyones, learner))
        start = PartialState().process_index * len(prompts)
        return {name: values[start : start + len(prompts)] for name, values in columns.items()}

    return sample


class WorkersCallback(TrainerCallback):  # type: ignore[misc]  # transformers ships no types here
    """A callback for FirstWorkerCallback whose saving needs the other workers."""

    def before_save(self) -> None:
        """In every worker, before the first one saves."""
        raise NotImplementedError


class FirstWorkerCallback(TrainerCallback):  # type: ignore[misc]  # transformers ships no types here
    """Runs a callback in the first worker only; what it saves it saves once every worker has written its part."""

    def __init__(self, callback: TrainerCallback) -> None:
        self.callback = callback

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        def save() -> bool:
            self.callback.on_save(args, state, control, **given)
            return bool(control.should_training_stop)

        if isinstance(self.callback, WorkersCallback):
            self.callback.before_save()
        control.should_training_stop = by_first(save)


def _in_first_worker(event: str) -> Callable[..., None]:
    def run(self: FirstWorkerCallback, *given: Any, **named: Any) -> None:
        if PartialState().is_main_process:
            getattr(self.callback, event)(*given, **named)

    return run


for _event in vars(TrainerCallback):
    if _event.startswith("on_") and _event != "on_save":
        setattr(FirstWorkerCallback, _event, _in_first_worker(_event))
