"""API keys of endpoints, by sampling: in this process's memory and nowhere else."""

from shared.contracts.rollout import ENDPOINT_KEY_HEADER, ModelEndpoint, SamplingRequest
from shared.errors import Invalid


class EndpointKeys:
    """A coordinator that starts again has none: a sampling that needs its key pauses until its caller repeats it."""

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}

    def check(self, request: SamplingRequest, api_key: str | None) -> None:
        """Raises Invalid for a key too many or too few."""
        needed = request.endpoint is not None and request.endpoint.with_key
        if api_key is not None and not needed:
            raise Invalid("an API key came that `endpoint.with_key` does not announce; nothing was started")
        if needed and api_key is None and request.sampling_id not in self._keys:
            raise Invalid(
                f"`endpoint.with_key`: send the API key in the header {ENDPOINT_KEY_HEADER}; nothing was started"
            )

    def keep(self, sampling_id: str, api_key: str) -> None:
        """The newest key of a sampling counts."""
        self._keys[sampling_id] = api_key

    def of(self, sampling_id: str) -> str | None:
        """None: no key was given."""
        return self._keys.get(sampling_id)

    def obstacle(self, sampling_id: str, endpoint: ModelEndpoint) -> str | None:
        """Why a sampling has to wait for its key, or None."""
        if not endpoint.with_key or sampling_id in self._keys:
            return None
        return (
            f"the API key of {endpoint.url} is not known any more (it is kept in memory only): "
            "run the same `sqlclimb sample` again, which sends it"
        )
