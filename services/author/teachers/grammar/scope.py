"""A FROM clause along many-to-one keys, with the rows it yields on the main seed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from services.author.catalogue import Catalogue, Column, ForeignKey, Table
from shared.seed_rows import Value

JoinedRow = dict[Column, Value]


@dataclass(frozen=True)
class Scope:
    """`base` joined with what its keys lead to. One row of the base gives at most one joined row."""

    catalogue: Catalogue
    base: Table
    joins: tuple[ForeignKey, ...] = ()

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The base, then the joined tables in order."""
        return (self.base, *(self.catalogue.tables[key.references] for key in self.joins))

    def narrowed(self, columns: Iterable[Column]) -> "Scope":
        """Without the joins that none of the columns needs. The same rows: the keys followed are never NULL."""
        needed = {column.table for column in columns}
        joins: list[ForeignKey] = []
        for key in reversed(self.joins):
            if key.references in needed:
                needed.add(key.table)
                joins.insert(0, key)
        return Scope(self.catalogue, self.base, tuple(joins))

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Every column of every table."""
        return tuple(column for table in self.tables for column in table.columns)

    @cached_property
    def keys(self) -> frozenset[Column]:
        """The referenced columns of the joins: what the base shows as well."""
        return frozenset(self.ends(key)[1] for key in self.joins)

    @cached_property
    def rows(self) -> tuple[JoinedRow, ...]:
        """The inner join on the main seed."""
        rows: list[JoinedRow] = [_keyed(self.base, row) for row in self.base.rows]
        for key in self.joins:
            target = self.catalogue.tables[key.references]
            parents = {row.get(key.referenced): _keyed(target, row) for row in target.rows}
            referencing, _ = self.ends(key)
            rows = [
                {**row, **parents[row[referencing]]}
                for row in rows
                if row[referencing] is not None and row[referencing] in parents
            ]
        return tuple(rows)

    @cached_property
    def _merged(self) -> frozenset[str]:
        """Column names that a USING makes one."""
        return frozenset(key.column for key in self.joins if self._uses(key))

    def _uses(self, key: ForeignKey) -> bool:
        """Whether USING can say this join: equal names, in these two tables and no other of the scope."""
        holders = [table for table in self.tables if any(column.name == key.column for column in table.columns)]
        return key.column == key.referenced and len(holders) == 2

    def reference(self, column: Column) -> str:
        """The column as SQL writes it here: qualified only where its bare name would be ambiguous."""
        holders = [table for table in self.tables if any(other.name == column.name for other in table.columns)]
        if len(holders) == 1 or column.name in self._merged:
            return column.sql
        return self.qualified(column)

    def qualified(self, column: Column) -> str:
        """The column with its table."""
        return f"{self.catalogue.tables[column.table].sql}.{column.sql}"

    def ends(self, key: ForeignKey) -> tuple[Column, Column]:
        """The referencing column and the referenced one."""
        return self.catalogue.column(key.table, key.column), self.catalogue.column(key.references, key.referenced)

    @cached_property
    def sql(self) -> str:
        """The FROM clause without the word FROM."""
        text = self.base.sql
        for key in self.joins:
            referencing, referenced = self.ends(key)
            text += f" JOIN {self.catalogue.tables[key.references].sql}"
            if self._uses(key):
                text += f" USING ({referencing.sql})"
            else:
                text += f" ON {self.qualified(referenced)} = {self.qualified(referencing)}"
        return text


def _keyed(table: Table, row: dict[str, Value]) -> JoinedRow:
    return {column: row.get(column.name) for column in table.columns}


def scopes_of(catalogue: Catalogue, joins: int) -> Iterator[Scope]:
    """Every scope with that many joins in which no table occurs twice, deterministic in order.

    Only keys that are never NULL are followed: an inner join over the others would silently leave rows out.
    """
    if joins == 0:
        yield from (Scope(catalogue, table) for table in catalogue.tables.values() if table.rows)
        return
    for scope in scopes_of(catalogue, joins - 1):
        names = [table.name for table in scope.tables]
        last = scope.joins[-1] if scope.joins else None
        for key in catalogue.foreign_keys:
            is_new = key.table in names and key.references not in names
            # joins from one table in the schema's order only: a set of joins has one spelling
            is_ordered = (
                last is None or key.table != last.table or _position(catalogue, key) > _position(catalogue, last)
            )
            if is_new and is_ordered and not catalogue.column(key.table, key.column).nullable:
                yield Scope(catalogue, scope.base, (*scope.joins, key))


def _position(catalogue: Catalogue, key: ForeignKey) -> int:
    return catalogue.foreign_keys.index(key)
