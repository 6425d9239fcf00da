"""The given golds, read where they lie (`/work/shared/data`): other people's schemas, seeds and queries."""

import itertools
import json
import re
from pathlib import Path

import pytest

from shared.contracts.verifier import BundleSource

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"

needs_reference_data = pytest.mark.skipif(
    not FOLDER.exists(), reason=f"{FOLDER} is absent: the reference golds come with the task, not with the project"
)


def alternatives(gold: str) -> list[list[str]]:
    """For each of the `;` alternatives its variants: every choice of the optional `{a, b}` columns, all of them first.

    `{}` repeats the chosen ones.
    """
    return [_variants(text.strip()) for text in gold.split(";") if text.strip()]


def _variants(text: str) -> list[str]:
    optional = re.search(r"\{([^}]+)\}", text)
    if optional is None:
        return [text]
    columns = [column.strip() for column in optional[1].split(",")]
    choices = [
        ", ".join(chosen) for count in range(len(columns), 0, -1) for chosen in itertools.combinations(columns, count)
    ]
    return [text.replace(optional[0], chosen).replace("{}", chosen) for chosen in choices]


def defog_alternatives() -> dict[str, list[list[list[str]]]]:
    """Database name to its golds, each as `alternatives`."""
    golds: dict[str, list[list[list[str]]]] = {}
    for line in (FOLDER / "defog" / "golds.jsonl").read_text().splitlines():
        row = json.loads(line)
        golds.setdefault(row["db"], []).append(alternatives(row["gold"]))
    return golds


def defog_golds() -> dict[str, list[str]]:
    """Database name to its golds, the first variant of each."""
    return {name: [gold[0][0] for gold in golds] for name, golds in defog_alternatives().items()}


def defog_bundle(name: str) -> BundleSource:
    """Schema and rows in one script."""
    return BundleSource(name=name, schema_sql=(FOLDER / "defog" / name / f"{name}.sql").read_text())


def recipe_bundle() -> BundleSource:
    """The published recipe's store."""
    folder = FOLDER / "shop-recipe"
    return BundleSource(
        name="shop-recipe",
        schema_sql=(folder / "schema.sql").read_text(),
        seed_sql=(folder / "seed.sql").read_text(),
    )


def recipe_golds() -> list[str]:
    """Its twelve tasks' golds."""
    lines = (FOLDER / "shop-recipe" / "tasks.sample.jsonl").read_text().splitlines()
    return [json.loads(line)["sql"] for line in lines]


def attacks() -> list[dict[str, str]]:
    """Hostile statements: `name`, `sql`."""
    statements: list[dict[str, str]] = json.loads((FOLDER / "attacks.json").read_text())
    return statements
