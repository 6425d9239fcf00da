"""Settings of the teachers that are models."""

from pydantic import Field, SecretStr

from services.author.teachers.pricing import Price
from shared.settings import CommonSettings


class TeacherSettings(CommonSettings):
    """The models that may teach. A key left out switches its teacher off."""

    anthropic_api_key: SecretStr | None = Field(default=None, description="key of Anthropic's API, or of Bedrock")
    anthropic_base_url: str = Field(
        default="https://api.anthropic.com", pattern="^https?://", description="Anthropic's API, or a gateway to it"
    )
    anthropic_model: str = Field(
        default="claude-sonnet-5-5", min_length=1, description="what `anthropic` calls by default"
    )
    anthropic_bedrock_region: str | None = Field(
        default=None, min_length=1, description="call Claude on Amazon Bedrock in this region, e.g. us-east-1"
    )
    anthropic_calls_per_minute: int = Field(default=50, ge=0, description="0: no limit of ours")
    openai_api_key: SecretStr | None = Field(
        default=None, description="key of the endpoint; vLLM without one takes any"
    )
    openai_base_url: str = Field(
        default="https://api.openai.com/v1",
        pattern="^https?://",
        description="an OpenAI-compatible endpoint, with its /v1",
    )
    openai_model: str | None = Field(default=None, min_length=1, description="what `openai` calls by default")
    openai_calls_per_minute: int = Field(default=0, ge=0, description="0: no limit of ours")
    teacher_prices: dict[str, Price] = Field(
        default_factory=dict,
        description='USD per million tokens by model, e.g. {"my-model": {"input": 0.5, "output": 2}}; beside the table',
    )
    teacher_retries: int = Field(default=6, ge=0, le=20, description="times the SDK tries a call again (429, 5xx, …)")
    teacher_stall_seconds: float = Field(default=120, gt=0, description="a reply that sends nothing for so long is cut")
    teacher_values: bool = Field(default=True, description="show the model some values of the bundle's own rows")
