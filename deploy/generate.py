"""Writes what is derived: `values.schema.json`, the table in docs/kubernetes-values.md, the dashboards.

`python -m deploy.generate` writes; `tests/deploy` fails when a file differs from what this makes.
"""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from deploy import dashboards
from deploy.chart_values import Values
from shared.settings import REPOSITORY

CHART = REPOSITORY / "deploy/helm/sqlclimb"
TABLE = REPOSITORY / "docs/kubernetes-values.md"

_COMMENT = re.compile(r"^\s*# -- (.*)$")
_CONTINUED = re.compile(r"^\s*# (.*)$")
_KEY = re.compile(r"^(\s*)([A-Za-z0-9]+):")


def descriptions(text: str) -> dict[str, str]:
    """Dotted path of a value to the comment above it."""
    found: dict[str, str] = {}
    comment: list[str] = []
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        if match := _COMMENT.match(line):
            comment = [match[1]]
        elif comment and (match := _CONTINUED.match(line)):
            comment.append(match[1])
        elif match := _KEY.match(line):
            indent = len(match[1])
            path = [*(part for part in path if part[0] < indent), (indent, match[2])]
            if comment:
                found[".".join(name for _, name in path)] = " ".join(comment)
            comment = []
    return found


def schema() -> dict[str, Any]:
    """The values' JSON schema, with the meanings of `values.yaml`."""
    made: dict[str, Any] = _cleaned(Values.model_json_schema(), ("title", "default"))
    _describe(made, "", made, descriptions((CHART / "values.yaml").read_text()))
    used = set(re.findall(r"#/\$defs/(\w+)", json.dumps(made["properties"])))
    made["$defs"] = {name: definition for name, definition in made["$defs"].items() if name in used}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **made}


def _cleaned(node: Any, keys: tuple[str, ...]) -> Any:
    """Without titles and defaults, which say nothing here (a property that is called so stays); keys closed."""
    if isinstance(node, dict):
        kept = {name: value for name, value in node.items() if name not in keys or isinstance(value, dict)}
        if "patternProperties" in kept:
            kept.setdefault("additionalProperties", False)  # else a key that fits no pattern would be welcome
        return {name: _cleaned(value, keys) for name, value in kept.items()}
    return [_cleaned(item, keys) for item in node] if isinstance(node, list) else node


def _describe(node: dict[str, Any], path: str, root: dict[str, Any], meanings: dict[str, str]) -> None:
    """Inlines references to objects, so that each place can carry its own meaning."""
    for name, child in node.get("properties", {}).items():
        inner = f"{path}.{name}" if path else name
        target = child.pop("$ref", None)
        if target is not None:
            child.update(json.loads(json.dumps(root["$defs"][target.rsplit("/", 1)[1]])))
        if inner in meanings:
            child["description"] = meanings[inner]
        _describe(child, inner, root, meanings)


def table() -> str:
    """All values as Markdown."""
    text = (CHART / "values.yaml").read_text()
    values, meanings = yaml.safe_load(text), descriptions(text)
    lines = [
        "# Values of the chart",
        "",
        "Generated from `deploy/helm/sqlclimb/values.yaml` by `python -m deploy.generate`.",
        "",
        "| value | default | meaning |",
        "|---|---|---|",
    ]
    for path, meaning in meanings.items():
        default: Any = values
        for part in path.split("."):
            default = default[part]
        shown = json.dumps(default).replace("|", "\\|")
        lines.append(f"| `{path}` | `{shown}` | {meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def files() -> dict[Path, str]:
    """Path to content of all that is generated."""
    boards = {CHART / "dashboards" / name: content for name, content in dashboards.files().items()}
    return {CHART / "values.schema.json": json.dumps(schema(), indent=1) + "\n", TABLE: table()} | boards


def main() -> None:
    """Write them."""
    for path, content in files().items():
        path.write_text(content)


if __name__ == "__main__":
    main()
