"""Which statements of a SQL file a bundle keeps, which it has no use for, and which it cannot take. Pure."""

from typing import Final, Literal

import postgast

from shared.bundles.sql_statements import Statement, nodes

Part = Literal["schema", "seed", "dropped", "refused"]

PART_OF_KIND: Final[dict[str, Part]] = {
    **dict.fromkeys(["create_stmt", "view_stmt", "comment_stmt", "define_stmt", "create_function_stmt"], "schema"),
    **dict.fromkeys(["create_enum_stmt", "composite_type_stmt", "create_range_stmt", "create_domain_stmt"], "schema"),
    **dict.fromkeys(["create_seq_stmt", "alter_seq_stmt", "alter_enum_stmt", "alter_domain_stmt"], "schema"),
    **dict.fromkeys(["create_schema_stmt", "create_extension_stmt", "index_stmt", "rename_stmt"], "schema"),
    **dict.fromkeys(["alter_object_schema_stmt", "create_cast_stmt"], "schema"),
    **dict.fromkeys(["insert_stmt", "update_stmt", "delete_stmt", "truncate_stmt", "refresh_mat_view_stmt"], "seed"),
    **dict.fromkeys(["variable_set_stmt", "transaction_stmt", "drop_stmt", "vacuum_stmt", "lock_stmt"], "dropped"),
    **dict.fromkeys(["grant_stmt", "grant_role_stmt", "alter_owner_stmt", "alter_default_privileges_stmt"], "dropped"),
    **dict.fromkeys(["create_role_stmt", "alter_role_stmt", "alter_role_set_stmt", "drop_role_stmt"], "dropped"),
    **dict.fromkeys(
        ["create_policy_stmt", "alter_policy_stmt", "create_trig_stmt", "create_event_trig_stmt"], "dropped"
    ),
    **dict.fromkeys(["alter_event_trig_stmt", "rule_stmt", "sec_label_stmt", "create_stats_stmt"], "dropped"),
    **dict.fromkeys(["createdb_stmt", "alter_database_stmt", "alter_database_set_stmt", "dropdb_stmt"], "dropped"),
    **dict.fromkeys(["create_publication_stmt", "alter_publication_stmt", "create_subscription_stmt"], "dropped"),
    **dict.fromkeys(["create_fdw_stmt", "create_foreign_server_stmt", "create_user_mapping_stmt"], "dropped"),
    **dict.fromkeys(["create_plang_stmt", "cluster_stmt", "reindex_stmt", "check_point_stmt"], "dropped"),
    **dict.fromkeys(["alter_function_stmt", "alter_object_depends_stmt", "alter_extension_stmt"], "dropped"),
    **dict.fromkeys(["create_table_space_stmt", "drop_table_space_stmt", "discard_stmt", "listen_stmt"], "dropped"),
    **dict.fromkeys(["alter_fdw_stmt", "alter_foreign_server_stmt", "alter_user_mapping_stmt"], "dropped"),
    **dict.fromkeys(["alter_subscription_stmt", "alter_system_stmt", "variable_show_stmt", "notify_stmt"], "dropped"),
    **dict.fromkeys(["drop_owned_stmt", "reassign_owned_stmt", "constraints_set_stmt"], "dropped"),
}
"""libpg_query's statement kinds; one that is not listed is refused."""

_LOADABLE = """
btree_gin btree_gist citext cube dict_int fuzzystrmatch hstore intarray isn lo ltree pg_trgm seg tablefunc unaccent
"""
LOADABLE_EXTENSIONS: Final = frozenset(_LOADABLE.split())
"""What the sandbox's Postgres has and lets the owner of a database create."""
_IDLE = """
plpgsql pgcrypto uuid-ossp pg_stat_statements pgaudit pg_cron pg_repack pg_partman pg_prewarm pgstattuple pageinspect
pg_buffercache pg_freespacemap pg_visibility amcheck adminpack dblink postgres_fdw file_fdw autoinc insert_username
moddatetime refint tcn tsm_system_rows tsm_system_time hypopg pg_hint_plan auto_explain pgrowlocks pg_walinspect sslinfo
xml2 plpython3u plperl pltcl supabase_vault pg_graphql pg_net pgjwt
"""
IDLE_EXTENSIONS: Final = frozenset(_IDLE.split())
"""What gives no column its type: a read-only copy does without."""

IDLE_COMMANDS: Final = frozenset(
    [
        *(nodes.AT_ChangeOwner, nodes.AT_EnableRowSecurity, nodes.AT_DisableRowSecurity, nodes.AT_ForceRowSecurity),
        *(nodes.AT_NoForceRowSecurity, nodes.AT_ClusterOn, nodes.AT_DropCluster, nodes.AT_ReplicaIdentity),
        *(nodes.AT_SetStatistics, nodes.AT_SetStorage, nodes.AT_SetCompression, nodes.AT_SetTableSpace),
        *(nodes.AT_SetRelOptions, nodes.AT_ResetRelOptions, nodes.AT_SetOptions, nodes.AT_SetLogged),
        *(nodes.AT_EnableTrig, nodes.AT_DisableTrig, nodes.AT_EnableTrigUser, nodes.AT_DisableTrigUser),
        *(nodes.AT_EnableTrigAll, nodes.AT_DisableTrigAll, nodes.AT_EnableAlwaysTrig, nodes.AT_EnableReplicaTrig),
    ]
)
"""ALTER TABLE commands about owners, storage, triggers and row security."""

COMMENTED: Final = frozenset(
    [
        *(nodes.OBJECT_TABLE, nodes.OBJECT_COLUMN, nodes.OBJECT_VIEW, nodes.OBJECT_MATVIEW, nodes.OBJECT_TYPE),
        *(nodes.OBJECT_DOMAIN, nodes.OBJECT_SCHEMA, nodes.OBJECT_TABCONSTRAINT),
    ]
)
"""What a kept COMMENT ON is about."""


def part_of(statement: Statement) -> Part:
    """Where a statement belongs, seen alone."""
    kind, node = statement.kind, statement.node
    if kind == "alter_table_stmt":
        idle = {command.alter_table_cmd.subtype for command in node.cmds} <= IDLE_COMMANDS
        return "dropped" if idle or node.objtype == nodes.OBJECT_FOREIGN_TABLE else "schema"
    if kind == "select_stmt":  # of those only the sequences' positions belong to a copy
        called = {call.funcname[-1].string.sval for call in postgast.find_nodes(node, nodes.FuncCall)}
        return "seed" if "setval" in called else "dropped"
    if kind == "create_table_as_stmt":
        return "schema" if node.objtype == nodes.OBJECT_MATVIEW or node.into.skip_data else "refused"
    if kind == "create_stmt" and node.relation.relpersistence == "t":
        return "refused"
    if kind == "create_extension_stmt":
        if node.extname in LOADABLE_EXTENSIONS:
            return "schema"
        return "dropped" if node.extname in IDLE_EXTENSIONS else "refused"
    if kind == "comment_stmt":
        return "schema" if node.objtype in COMMENTED and not _on_public(statement) else "dropped"
    if kind == "create_schema_stmt" and node.schemaname == "public":
        return "dropped"
    if kind == "index_stmt":
        return "schema" if node.unique else "dropped"
    if kind == "create_function_stmt" and node.return_type.names and _returns_trigger(statement):
        return "dropped"
    return PART_OF_KIND.get(kind, "refused")


def counts_on(statement: Statement) -> bool:
    """Whether the statement only says how the next row gets its number: a sequence's owner, a default, an identity."""
    if statement.kind != "alter_table_stmt":
        return statement.kind == "alter_seq_stmt"
    commands = [command.alter_table_cmd for command in statement.node.cmds]
    nexts = (call.funcname[-1].string.sval for c in commands for call in postgast.find_nodes(c, nodes.FuncCall))
    kinds = {command.subtype for command in commands}
    return bool(kinds == {nodes.AT_AddIdentity}) or (kinds == {nodes.AT_ColumnDefault} and "nextval" in set(nexts))


def why_refused(statement: Statement) -> str:
    """What to do about a statement that a bundle cannot take."""
    if statement.kind == "create_extension_stmt":
        return f"the sandbox has no extension {statement.node.extname}: remove it, and the columns of its types"
    if statement.kind == "create_stmt":
        return "a temporary table is gone when the session ends: make it a table"
    if statement.kind == "create_foreign_table_stmt":
        return "a foreign table's rows lie elsewhere: remove it, or make it a table with rows"
    if statement.kind == "create_table_as_stmt":
        return "write it as CREATE TABLE with its columns, and its rows as INSERTs"
    return "remove it from the file"


def _returns_trigger(statement: Statement) -> bool:
    return statement.node.return_type.names[-1].string.sval in ("trigger", "event_trigger")


def _on_public(statement: Statement) -> bool:
    node = statement.node
    return bool(node.objtype == nodes.OBJECT_SCHEMA and node.object.string.sval == "public")
