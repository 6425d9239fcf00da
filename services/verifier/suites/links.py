"""What a schema leaves unsaid: keys and references inferred from the main seed and from how golds join. Pure.

A candidate may rely on an id being one: a seed that repeats ids only because the schema forgot to declare them would
call right answers wrong. So a key is inferred for a table without one where its rows on the main seed bear it out.
References that only golds tell of are followed most of the time and broken at times: nothing forbids an orphan.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from services.verifier.suites.study import Place
from services.verifier.suites.tables import ForeignKey, Table

FEWEST_ROWS = 3
"""Distinct values in fewer rows say nothing."""

_ID = re.compile(r"(.*_)?id|.*[a-z]id|.*Id|.*ID")


def with_inferred(tables: Sequence[Table], links: Iterable[tuple[Place, Place]]) -> list[Table]:
    """The tables with inferred keys and references added to the declared ones."""
    links = list(dict.fromkeys(links))
    keyed = {table.name: _with_key(table, links) for table in tables}
    for left, right in links:
        for (name, column), (parent, referenced) in ((left, right), (right, left)):
            if name == parent or name not in keyed or parent not in keyed:
                continue
            child, target = keyed[name].index(column), keyed[parent].index(referenced)
            free = all(child not in key.columns for key in keyed[name].foreign_keys)
            if free and (target,) in keyed[parent].keys and (child,) not in keyed[name].keys:
                key = ForeignKey((child,), parent, (target,), declared=False)
                keyed[name] = replace(keyed[name], foreign_keys=(*keyed[name].foreign_keys, key))
    return list(keyed.values())


def _with_key(table: Table, links: Sequence[tuple[Place, Place]]) -> Table:
    if table.keys or len(table.rows) < FEWEST_ROWS:
        return table
    joined = {column for pair in links for name, column in pair if name == table.name}
    named = [index for index, column in enumerate(table.columns) if _ID.fullmatch(column.name)]
    single = [index for index, column in enumerate(table.columns) if index in named or column.name in joined]
    for index in single:
        if _distinct(table, (index,)):
            return replace(table, keys=((index,),))
    if len(named) == len(table.columns) and _distinct(table, tuple(named)):
        return replace(table, keys=(tuple(named),))
    return table


def _distinct(table: Table, columns: tuple[int, ...]) -> bool:
    values = [tuple(row[index] for index in columns) for row in table.rows]
    return len(set(values)) == len(values) and all(None not in value for value in values)


def shared_values(tables: Sequence[Table], links: Iterable[tuple[Place, Place]]) -> Mapping[Place, Sequence[str]]:
    """Column to the distinct values, on the main seed, of itself and of the columns it is equated with; sorted."""
    group: dict[Place, set[Place]] = {}
    for table in tables:
        for column in table.columns:
            group[table.name, column.name] = {(table.name, column.name)}
    for left, right in links:
        if left in group and right in group and group[left] is not group[right]:
            group[left] |= group[right]
            for place in group[right]:
                group[place] = group[left]
    by_name = {table.name: table for table in tables}

    def values(place: Place) -> set[str]:
        index = by_name[place[0]].index(place[1])
        return {row[index] for row in by_name[place[0]].rows if row[index] is not None}  # type: ignore[misc]

    own = {place: values(place) for place in group}
    return {place: sorted(set().union(*(own[other] for other in members))) for place, members in group.items()}
