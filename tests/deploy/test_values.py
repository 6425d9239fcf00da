"""Any values that fit the schema render valid manifests, or are refused with a sentence that names the value."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from deploy import generate
from tests.deploy.checking import check_all
from tests.deploy.helm import KUBERNETES, OPERATORS, PACKAGES, PRESETS, parse, template

SCHEMA = generate.schema()
DEFAULTS = yaml.safe_load((generate.CHART / "values.yaml").read_text())


@pytest.mark.parametrize("path", generate.files(), ids=lambda path: path.name)
def test_generated_files_are_what_the_sources_make(path: Path) -> None:
    assert path.read_text() == generate.files()[path], "run `python -m deploy.generate`"


def test_every_value_is_explained() -> None:
    def leaves(values: dict[str, Any], path: str) -> list[str]:
        found = []
        for name, value in values.items():
            inner = f"{path}.{name}".lstrip(".")
            is_group = isinstance(value, dict) and inner not in generate.descriptions(text) and value
            found += leaves(value, inner) if is_group else [inner]
        return found

    text = (generate.CHART / "values.yaml").read_text()
    assert set(leaves(DEFAULTS, "")) == set(generate.descriptions(text))


GENERATE = (Phase.generate,)
"""Shrinking renders the chart some hundred times more."""

FIXED = {
    "affinity": st.just({}),
    "valueFrom": st.just({"secretKeyRef": {"name": "s", "key": "k"}}),
    "extraObjects": st.just([]),
}
"""Parts that Kubernetes checks, not the schema."""

PATTERN_FREE = "abcXYZ-/.:09 é'\"{}"
"""What texts without a pattern are made of."""

PEERS = st.just([{"podSelector": {"matchLabels": {"a": "b"}}}])


def strategy(node: dict[str, Any], name: str = "") -> st.SearchStrategy[Any]:
    """Values that a part of the schema accepts."""
    if "$ref" in node:
        return strategy(SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[1]], name)
    if name in FIXED:
        return FIXED[name]
    if "anyOf" in node:
        kinds = [strategy(choice, name) for choice in node["anyOf"] if choice.get("type") != "null"]
        return st.one_of(kinds)
    if "const" in node:
        return st.just(node["const"])
    if "enum" in node:
        return st.sampled_from(node["enum"])
    match node.get("type"):
        case "boolean":
            return st.booleans()
        case "integer":
            low = int(node.get("minimum", 0))
            return st.integers(low, int(node.get("maximum", low + 10_000)))
        case "number":
            low = node.get("exclusiveMinimum", node.get("minimum", 0))
            high = node.get("exclusiveMaximum", node.get("maximum", low + 1000))
            return st.floats(low, high, exclude_min=True, exclude_max=True, allow_nan=False, width=32)
        case "string":
            if "pattern" not in node:
                return st.text(alphabet=PATTERN_FREE, min_size=node.get("minLength", 0), max_size=12)
            return st.from_regex(re.compile(node["pattern"], re.ASCII), fullmatch=True).filter(is_plain(node))
        case "array":
            if node["items"] in ({"type": "object", "additionalProperties": True}, {"type": "object"}):
                return PEERS
            unique = node["items"].get("enum") is not None or "pattern" in node["items"]
            return st.lists(strategy(node["items"], name), min_size=node.get("minItems", 0), max_size=3, unique=unique)
        case "object":
            return object_strategy(node)
    raise AssertionError(f"{name}: {node}")


def is_plain(node: dict[str, Any]) -> Any:
    """Not what `not` forbids; `$` also matches before a line's end."""
    forbidden = node.get("not", {}).get("const")
    return lambda text: text != forbidden and not text.endswith("\n") and len(text) < 250


def object_strategy(node: dict[str, Any]) -> st.SearchStrategy[Any]:
    """An object with some of its properties: the others keep the chart's defaults."""
    if "properties" not in node:
        pattern, inner = next(iter(node.get("patternProperties", {}).items()), ("^[a-z]{1,9}$", None))
        keys = strategy(node.get("propertyNames", {"type": "string", "pattern": pattern}))
        return st.dictionaries(keys, strategy(inner or node["additionalProperties"]), max_size=2)
    optional = {name: strategy(child, name) for name, child in node["properties"].items()}
    required = {name: optional.pop(name) for name in node.get("required", []) if is_bare(node)}

    @st.composite
    def some(draw: st.DrawFn) -> dict[str, Any]:
        chosen = draw(st.lists(st.sampled_from(sorted(optional)), max_size=4, unique=True)) if optional else []
        return {name: draw(made) for name, made in required.items()} | {name: draw(optional[name]) for name in chosen}

    return some()


def is_bare(node: dict[str, Any]) -> bool:
    """An item of a list or of a setting, which no default of the chart completes: those are referred to."""
    return node in SCHEMA["$defs"].values()


def check_values(values: dict[str, Any], seed: int) -> str:
    """Renders them over a preset; valid, or the sentence of a refusal."""
    chosen = random.Random(seed)
    version, kubernetes = chosen.choice(list(PACKAGES)), chosen.choice(KUBERNETES)
    apis = [api for api in OPERATORS if chosen.random() < 0.5]
    done = template(chosen.choice(PRESETS), values=values, version=version, kubernetes=kubernetes, apis=apis)
    if done.returncode == 0:
        check_all(parse(done.stdout), kubernetes)
        return ""
    sentence = done.stderr
    assert re.search(r"execution error at .*: [\w.]+: [a-z].{20,}", sentence), sentence
    return sentence


@settings(max_examples=5, deadline=None, phases=GENERATE, suppress_health_check=list(HealthCheck), derandomize=True)
@given(strategy(SCHEMA), st.integers(0, 10_000))
def test_values_of_the_schema_render_or_are_refused_with_a_sentence(values: dict[str, Any], seed: int) -> None:
    check_values(values, seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=300, deadline=None, phases=GENERATE, suppress_health_check=list(HealthCheck))
@given(strategy(SCHEMA), st.integers(0, 10_000))
def test_three_hundred_values_of_the_schema(values: dict[str, Any], seed: int) -> None:
    check_values(values, seed)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.sampled_from(sorted(DEFAULTS)), st.from_regex(r"\A[a-z]{3,12}X\Z"))
def test_a_key_that_nobody_knows_is_named(part: str, key: str) -> None:
    values = {part: {key: 1}} if isinstance(DEFAULTS[part], dict) and part != "commonLabels" else {key: 1}
    done = template(values=values)
    assert done.returncode != 0 and key in done.stderr
