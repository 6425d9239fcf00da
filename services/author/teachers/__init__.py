"""Teachers by name. All speak the protocol in `base`; `Teachers` checks what is asked of them and opens one."""

import importlib.util

from services.author.teachers.base import Teacher
from services.author.teachers.endpoint import ModelEndpoint
from services.author.teachers.grammar import GrammarTeacher
from services.author.teachers.grammar.styles import STYLES as GRAMMAR_STYLES
from services.author.teachers.metered import Budget, Ledger, MeteredModel, Pace
from services.author.teachers.model_teacher import ModelTeacher, Pattern
from services.author.teachers.pricing import Price, price_of
from services.author.teachers.prompt import STYLES as MODEL_STYLES
from services.author.teachers.settings import TeacherSettings
from shared.contracts.author import AuthoringRequest
from shared.contracts.base import FieldError
from shared.domain import Bundle
from shared.errors import Invalid


class Teachers:
    """The teachers of this process."""

    def __init__(self, settings: TeacherSettings) -> None:
        self._settings = settings
        self._grammar = GrammarTeacher()
        self._endpoints: dict[tuple[str, str], ModelEndpoint] = {}
        self._paces = {
            "anthropic": Pace(settings.anthropic_calls_per_minute),
            "openai": Pace(settings.openai_calls_per_minute),
        }

    async def close(self) -> None:
        """Give back connections."""
        for endpoint in self._endpoints.values():
            await endpoint.close()

    def resolve(self, request: AuthoringRequest) -> AuthoringRequest:
        """The request with its model filled in. Raises Invalid, naming the field and the setting that mends it."""
        names = [self._grammar.name, *self._paces]
        if request.teacher not in names:
            raise _invalid("teacher", f"no teacher {request.teacher!r}; there are {sorted(names)}")
        styles = {style.name for style in GRAMMAR_STYLES} if request.teacher == "grammar" else set(MODEL_STYLES)
        if unknown := sorted(set(request.styles) - styles):
            raise _invalid("styles", f"{request.teacher} has no style {unknown}; there are {sorted(styles)}")
        if request.teacher == self._grammar.name:
            for field in ("model", "max_cost_usd"):
                if getattr(request, field) is not None:
                    raise _invalid(field, "the grammar teacher has no model and costs nothing: leave it out")
            return request
        resolved = request.model_copy(update={"model": request.model or self._default_model(request.teacher)})
        self._check_model(resolved)
        return resolved

    def open(self, request: AuthoringRequest, bundle: Bundle, ledger: Ledger, spent_usd: float) -> Teacher:
        """The teacher of a resolved request; a model's calls go through the ledger."""
        if request.teacher == self._grammar.name or request.model is None:
            return self._grammar
        model = MeteredModel(
            self.endpoint(request.teacher, request.model),
            ledger,
            Budget(request.max_cost_usd, spent_usd),
            self._paces[request.teacher],
            self._price(request.model),
            f"{request.authoring_id}:",
            request.concurrency,
        )
        pattern = Pattern(request.per_call, request.max_tokens, self._settings.teacher_values)
        return ModelTeacher(request.teacher, model, bundle, pattern, request.concurrency)

    def endpoint(self, teacher: str, model: str) -> ModelEndpoint:
        """A model of this process; made when first asked for."""
        place = (teacher, model)
        if place not in self._endpoints:
            self._endpoints[place] = _connect(teacher, self._settings, model)
        return self._endpoints[place]

    def _default_model(self, teacher: str) -> str:
        found = self._settings.anthropic_model if teacher == "anthropic" else self._settings.openai_model
        if found is None:
            raise _invalid("model", "name the model, or set SQLCLIMB_OPENAI_MODEL for the author")
        return found

    def _price(self, model: str) -> Price | None:
        return price_of(model, self._settings.teacher_prices)

    def _check_model(self, request: AuthoringRequest) -> None:
        settings, model = self._settings, request.model or ""
        if request.max_cost_usd is not None and self._price(model) is None:
            raise _invalid(
                "max_cost_usd",
                f"the price of {model!r} is unknown, so nothing would stop it: set SQLCLIMB_TEACHER_PRICES of the "
                f'author to {{"{model}": {{"input": …, "output": …}}}}, in USD per million tokens, or set no limit',
            )
        if request.teacher == "openai":
            if settings.openai_api_key is None:
                raise _invalid(
                    "teacher", "set SQLCLIMB_OPENAI_API_KEY for the author (any text for a vLLM without keys)"
                )
        elif settings.anthropic_bedrock_region is not None:
            if settings.anthropic_api_key is None and importlib.util.find_spec("boto3") is None:
                raise _invalid(
                    "teacher",
                    "Bedrock needs SQLCLIMB_ANTHROPIC_API_KEY (a Bedrock key), or `pip install anthropic[bedrock]` "
                    "for the author to sign with AWS credentials",
                )
        elif settings.anthropic_api_key is None:
            raise _invalid("teacher", "set SQLCLIMB_ANTHROPIC_API_KEY for the author")


def _connect(teacher: str, settings: TeacherSettings, model: str) -> ModelEndpoint:
    """The SDKs are imported when first needed: together they take as long as the rest of the service."""
    if teacher == "anthropic":
        from services.author.teachers.anthropic_endpoint import AnthropicEndpoint

        return AnthropicEndpoint(settings, model)
    from services.author.teachers.openai_endpoint import OpenAIEndpoint

    return OpenAIEndpoint(settings, model)


def _invalid(field: str, message: str) -> Invalid:
    return Invalid(f"`{field}`: {message}. Nothing was done.", [FieldError(field=field, message=message)])
