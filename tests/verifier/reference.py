"""The given golds, read where they lie (`/work/shared/data`): other people's schemas, seeds and queries."""

import json
import re
from pathlib import Path

import pytest

from shared.contracts.verifier import BundleSource

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"

needs_reference_data = pytest.mark.skipif(
    not FOLDER.exists(), reason=f"{FOLDER} is absent: the reference golds come with the task, not with the project"
)


def first_variant(gold: str) -> str:
    """The first of the `;` alternatives, with all optional `{a, b}` columns; `{}` repeats them."""
    text = gold.split(";")[0]
    optional = re.search(r"\{([^}]+)\}", text)
    if optional is None:
        return text
    return text.replace(optional[0], optional[1]).replace("{}", optional[1])


def defog_golds() -> dict[str, list[str]]:
    """Database name to its golds, first variants."""
    golds: dict[str, list[str]] = {}
    for line in (FOLDER / "defog" / "golds.jsonl").read_text().splitlines():
        row = json.loads(line)
        golds.setdefault(row["db"], []).append(first_variant(row["gold"]))
    return golds


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
