"""Names the parse allowlist goes by. Generous for analysis: what computes on its arguments and nothing else.

Left out on purpose: what is volatile (random, clock_timestamp, sequences), reads files, settings or catalogs, runs SQL
given as text, holds locks, sleeps, or cannot be interrupted (normalize).
"""

_AGGREGATES = """
any_value array_agg avg bit_and bit_or bit_xor bool_and bool_or corr count covar_pop covar_samp every json_agg
json_object_agg jsonb_agg jsonb_object_agg json_agg_strict jsonb_agg_strict max min mode percentile_cont percentile_disc
range_agg range_intersect_agg regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
regr_syy stddev stddev_pop stddev_samp string_agg sum var_pop var_samp variance
"""
_WINDOW = "cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number"
_MATH = """
abs acos acosd acosh asin asind asinh atan atan2 atan2d atand atanh cbrt ceil ceiling cos cosd cosh cot cotd degrees div
erf erfc exp factorial floor gamma gcd lcm lgamma ln log log10 min_scale mod pi pow power radians round scale sign sin
sind sinh sqrt tan tand tanh trim_scale trunc width_bucket
"""
_TEXT = """
ascii bit_length btrim casefold char_length character_length chr concat concat_ws convert_from convert_to decode encode
format initcap left length lower lpad ltrim md5 octet_length overlay position quote_ident quote_literal quote_nullable
regexp_count regexp_instr regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array
regexp_split_to_table regexp_substr repeat replace reverse right rpad rtrim sha224 sha256 sha384 sha512 split_part
starts_with string_to_array string_to_table strpos substr substring textcat to_ascii to_hex translate unaccent unistr
upper similarity word_similarity levenshtein soundex metaphone like_escape similar_to_escape to_bin to_oct
"""
_DATES = """
age date_add date_bin date_part date_subtract date_trunc extract generate_series isfinite justify_days justify_hours
justify_interval localtime make_date make_interval make_time make_timestamp make_timestamptz now overlaps
statement_timestamp timezone to_char to_date to_number to_timestamp transaction_timestamp date time timestamp
timestamptz
"""
_ARRAYS = """
array_append array_cat array_dims array_fill array_length array_lower array_ndims array_position array_positions
array_prepend array_remove array_replace array_reverse array_sort array_to_string array_upper cardinality
generate_subscripts trim_array unnest
"""
_JSON = """
array_to_json json_array_elements json_array_elements_text json_array_length json_build_array json_build_object
json_each json_each_text json_extract_path json_extract_path_text json_object json_object_keys json_populate_record
json_populate_recordset json_strip_nulls json_to_record json_to_recordset json_typeof jsonb_array_elements
jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text
jsonb_extract_path jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_keys jsonb_path_exists
jsonb_path_match jsonb_path_query jsonb_path_query_array jsonb_path_query_first jsonb_populate_record
jsonb_populate_recordset jsonb_pretty jsonb_set jsonb_strip_nulls jsonb_to_record jsonb_to_recordset jsonb_typeof
row_to_json to_json to_jsonb
"""
_OTHER = """
area box center circle diameter height lseg npoints path point polygon radius width enum_first enum_last enum_range bool
char float4 float8 int2 int4 int8 isempty lower_inc lower_inf multirange num_nonnulls num_nulls numeric numrange
daterange int4range int8range tsrange tstzrange range_merge text upper_inc upper_inf varchar host masklen family
pg_typeof setweight plainto_tsquery phraseto_tsquery to_tsquery to_tsvector ts_headline ts_rank ts_rank_cd
websearch_to_tsquery bit_count get_bit get_byte
"""

ALLOWED_FUNCTIONS = frozenset(" ".join((_AGGREGATES, _WINDOW, _MATH, _TEXT, _DATES, _ARRAYS, _JSON, _OTHER)).split())

CLOCK_FUNCTIONS = frozenset({"now", "statement_timestamp", "transaction_timestamp", "age"})
"""Their result depends on when they run; `age` does with one argument."""

_TYPES = """
aclitem cid refcursor regclass regcollation regconfig regdictionary regnamespace regoper regoperator regproc
regprocedure regrole regtype tid txid_snapshot xid xid8 xml
"""

FORBIDDEN_TYPES = frozenset(_TYPES.split())
"""Beside every `pg_*` type: they read catalogs or parse what should not be parsed."""

SYSTEM_COLUMNS = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})
"""How rows are stored, which no question asks for and a reload changes. No table's own column may be called so."""

_CALLED = """
aclexplode amvalidate array_shuffle brin_summarize_new_values current_schemas current_setting currval fmgr_c_validator
fmgr_internal_validator fmgr_sql_validator gin_clean_pending_list lo_close lo_creat lo_create lo_get lo_import lo_tell
lo_tell64 lo_unlink mxid_age nextval normalize obj_description oidvectortypes pg_backup_start pg_backup_stop pg_basetype
pg_blocking_pids pg_cancel_backend pg_char_to_encoding pg_collation_actual_version pg_collation_for
pg_collation_is_visible pg_column_compression pg_column_size pg_column_toast_chunk_id pg_conversion_is_visible
pg_create_physical_replication_slot pg_create_restore_point pg_current_logfile pg_database_collation_actual_version
pg_database_size pg_ddl_command_out pg_ddl_command_send pg_dependencies_out pg_dependencies_send
pg_drop_replication_slot pg_encoding_max_length pg_encoding_to_char pg_extension_update_paths pg_function_is_visible
pg_import_system_collations pg_indexes_size pg_is_other_temp_schema pg_log_backend_memory_contexts pg_ls_dir
pg_ls_replslotdir pg_ls_tmpdir pg_lsn pg_lsn_hash pg_lsn_out pg_lsn_send pg_mcv_list_items pg_mcv_list_out
pg_mcv_list_send pg_ndistinct_out pg_ndistinct_send pg_node_tree_out pg_node_tree_send pg_opclass_is_visible
pg_operator_is_visible pg_opfamily_is_visible pg_options_to_table pg_partition_ancestors pg_partition_root
pg_partition_tree pg_promote pg_read_binary_file pg_read_file pg_relation_filenode pg_relation_filepath
pg_relation_is_publishable pg_relation_size pg_restore_attribute_stats pg_restore_relation_stats
pg_safe_snapshot_blocking_pids pg_sequence_last_value pg_sequence_parameters pg_settings_get_flags pg_size_bytes
pg_size_pretty pg_sleep pg_sleep_for pg_sleep_until pg_snapshot_out pg_snapshot_send pg_snapshot_xip pg_snapshot_xmax
pg_snapshot_xmin pg_split_walfile_name pg_stat_file pg_statistics_obj_is_visible pg_table_is_visible pg_table_size
pg_tablespace_databases pg_tablespace_location pg_tablespace_size pg_terminate_backend pg_total_relation_size
pg_ts_config_is_visible pg_ts_dict_is_visible pg_ts_parser_is_visible pg_ts_template_is_visible pg_type_is_visible
pg_walfile_name pg_walfile_name_offset pg_xact_commit_timestamp pg_xact_commit_timestamp_origin pg_xact_status
plpgsql_validator random_normal row_security_active setseed to_regclass to_regcollation to_regnamespace to_regoper
to_regoperator to_regproc to_regprocedure to_regrole to_regtype to_regtypemod ts_stat txid_snapshot_out
txid_snapshot_send txid_snapshot_xip txid_snapshot_xmax txid_snapshot_xmin txid_status uuidv7 xml_is_well_formed
xml_is_well_formed_content xml_is_well_formed_document xml_out xml_send xmlagg xmlcomment xmltext
"""
_CALLED_AS_ATTRIBUTES = frozenset(_CALLED.split())
_CALLED_AS_ATTRIBUTE_PREFIXES = (
    *("binary_upgrade_", "pg_advisory_", "pg_get_", "pg_replication_origin_", "pg_stat_get_", "pg_stat_reset_"),
    "pg_try_advisory_",
)


def calls_harm(attribute: str) -> bool:
    """Whether `x.attribute` may call a harmful function: one that takes a single argument can be written so.

    A column may have any name, so these are the very functions that the grants keep from a candidate, but for
    `is_normalized` and `xml`: likelier a column's name, and no harm beyond time.
    """
    return attribute in _CALLED_AS_ATTRIBUTES or attribute.startswith(_CALLED_AS_ATTRIBUTE_PREFIXES)


_NODES = """
A_ArrayExpr A_Const A_Expr A_Indices A_Indirection A_Star Alias BitString BoolExpr Boolean BooleanTest CTECycleClause
CTESearchClause CaseExpr CaseWhen CoalesceExpr CollateClause ColumnDef ColumnRef CommonTableExpr Float FuncCall
GroupingFunc GroupingSet Integer JoinExpr List MinMaxExpr NamedArgExpr NullTest RangeFunction RangeSubselect RangeVar
RawStmt ResTarget RowExpr SQLValueFunction SelectStmt SortBy String SubLink TypeCast TypeName WindowDef WithClause
JsonAggConstructor JsonArgument JsonArrayAgg JsonArrayConstructor JsonBehavior JsonFormat JsonFuncExpr JsonIsPredicate
JsonKeyValue JsonObjectAgg JsonObjectConstructor JsonOutput JsonReturning JsonValueExpr
"""

ALLOWED_NODES = frozenset(_NODES.split())
"""Parse tree nodes a candidate may be made of. Anything else (DML, INTO, FOR UPDATE, TABLESAMPLE, XML) is refused."""
