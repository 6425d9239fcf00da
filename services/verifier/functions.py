"""Names the parse allowlist goes by. Generous for analysis: what computes on its arguments and nothing else.

Left out on purpose: what is volatile (random, clock_timestamp, sequences), reads files, settings or catalogs, runs SQL
given as text, holds locks, or sleeps.
"""

_AGGREGATES = """
any_value array_agg avg bit_and bit_or bit_xor bool_and bool_or corr count covar_pop covar_samp every json_agg
json_object_agg jsonb_agg jsonb_object_agg max min mode percentile_cont percentile_disc range_agg range_intersect_agg
regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
stddev stddev_pop stddev_samp string_agg sum var_pop var_samp variance
"""
_WINDOW = "cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number"
_MATH = """
abs acos acosd acosh asin asind asinh atan atan2 atan2d atand atanh cbrt ceil ceiling cos cosd cosh cot cotd degrees div
erf erfc exp factorial floor gamma gcd lcm lgamma ln log log10 min_scale mod pi pow power radians round scale sign sin
sind sinh sqrt tan tand tanh trim_scale trunc width_bucket
"""
_TEXT = """
ascii bit_length btrim casefold char_length character_length chr concat concat_ws convert_from convert_to decode encode
format initcap left length lower lpad ltrim md5 normalize octet_length overlay position quote_ident quote_literal
quote_nullable regexp_count regexp_instr regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array
regexp_split_to_table regexp_substr repeat replace reverse right rpad rtrim sha224 sha256 sha384 sha512 split_part
starts_with string_to_array string_to_table strpos substr substring textcat to_ascii to_hex translate unaccent unistr
upper similarity word_similarity levenshtein soundex metaphone is_normalized like_escape similar_to_escape
"""
_DATES = """
age date_add date_bin date_part date_subtract date_trunc extract generate_series isfinite justify_days justify_hours
justify_interval localtime make_date make_interval make_time make_timestamp make_timestamptz now overlaps
statement_timestamp timezone to_char to_date to_number to_timestamp transaction_timestamp date timestamp timestamptz
"""
_ARRAYS = """
array_append array_cat array_dims array_fill array_length array_lower array_ndims array_position array_positions
array_prepend array_remove array_replace array_reverse array_sort array_to_string array_upper cardinality
generate_subscripts trim_array unnest
"""
_JSON = """
array_to_json json_array_elements json_array_elements_text json_array_length json_build_array json_build_object
json_each json_each_text json_extract_path json_extract_path_text json_object json_object_keys json_strip_nulls
json_typeof jsonb_array_elements jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object
jsonb_each jsonb_each_text jsonb_extract_path jsonb_extract_path_text jsonb_object jsonb_object_keys jsonb_path_exists
jsonb_path_query jsonb_path_query_array jsonb_path_query_first jsonb_strip_nulls jsonb_typeof row_to_json to_json
to_jsonb
"""
_OTHER = """
bool char float4 float8 int2 int4 int8 isempty lower_inc lower_inf multirange num_nonnulls num_nulls numeric numrange
daterange int4range int8range tsrange tstzrange range_merge text upper_inc upper_inf varchar host masklen family
pg_typeof setweight plainto_tsquery phraseto_tsquery to_tsquery to_tsvector ts_headline ts_rank ts_rank_cd
websearch_to_tsquery bit_count get_bit get_byte
"""

ALLOWED_FUNCTIONS = frozenset(" ".join((_AGGREGATES, _WINDOW, _MATH, _TEXT, _DATES, _ARRAYS, _JSON, _OTHER)).split())

CLOCK_FUNCTIONS = frozenset({"now", "statement_timestamp", "transaction_timestamp", "age"})
"""Their result depends on when they run; `age` does with one argument."""

FORBIDDEN_TYPES = frozenset({"xml", "refcursor", "txid_snapshot", "aclitem", "cid", "xid", "xid8", "tid"})
"""Beside every `reg*` and `pg_*` type: they read catalogs or parse what should not be parsed."""

_NODES = """
A_ArrayExpr A_Const A_Expr A_Indices A_Indirection A_Star Alias BitString BoolExpr Boolean BooleanTest CaseExpr
CaseWhen CoalesceExpr CollateClause ColumnRef CommonTableExpr Float FuncCall GroupingFunc GroupingSet Integer JoinExpr
List MinMaxExpr NamedArgExpr NullTest RangeFunction RangeSubselect RangeVar ResTarget RowExpr SQLValueFunction
SelectStmt SortBy String SubLink TypeCast TypeName WindowDef ColumnDef
JsonArrayAgg JsonArrayConstructor JsonKeyValue JsonObjectAgg JsonObjectConstructor JsonValueExpr JsonAggConstructor
"""

ALLOWED_NODES = frozenset(_NODES.split())
"""Parse tree nodes a candidate may be made of. Anything else (DML, INTO, FOR UPDATE, TABLESAMPLE, XML) is refused."""
