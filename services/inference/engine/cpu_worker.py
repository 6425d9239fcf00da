"""vLLM's CPU worker, started by `--worker-cls`: `GroupedLora` as its LoRA arithmetic, and no life after its server."""

import multiprocessing
import os

from vllm.platforms import current_platform
from vllm.v1.worker.cpu_worker import CPUWorker

from services.inference.engine.grouped_lora import GroupedLora
from services.inference.engine.parent_death import end_with_parent


class Worker(CPUWorker):  # type: ignore[misc]  # vLLM is not type-checked here
    """The stock worker; LoRA layers look their arithmetic up when the model loads."""

    def load_model(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # vLLM's own signature
        """Set this process up, then load."""
        end_with_server()
        name = f"{GroupedLora.__module__}.{GroupedLora.__qualname__}"
        type(current_platform).get_punica_wrapper = classmethod(lambda cls: name)
        return super().load_model(*args, **kwargs)


def end_with_server() -> None:
    """A server killed by SIGKILL would leave its core running with all its memory."""
    end_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:  # it ended before we asked
        os._exit(1)
