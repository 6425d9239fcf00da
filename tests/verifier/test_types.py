"""Every type that Postgres returns, compared under each profile, through a real sandbox."""

from collections.abc import Mapping

import pytest

from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import BundleSource, Profile, SandboxRequest, Status, VerifyItem, VerifyRequest

SANDBOX = "types"
SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'Happy');
CREATE DOMAIN price AS numeric(10, 2) CHECK (value >= 0);
CREATE DOMAIN label AS text;
CREATE TYPE place AS (name text, x numeric);
CREATE TYPE span AS RANGE (subtype = float8);
CREATE TABLE thing (
  id int PRIMARY KEY, mood mood, moods mood[], price price, label label, place place, span span, code "char",
  fixed char(8), bits bit(4), varbits varbit, raw bytea, net inet, block cidr, mac macaddr, mac8 macaddr8, uid uuid,
  vector tsvector, query tsquery, dot point, area box, lines path, ring circle, lsn pg_lsn, doc json, docb jsonb,
  cash money, tiny real, big float8, transaction xid, path jsonpath
);
"""
SEED = """
INSERT INTO thing VALUES (
  1, 'Happy', '{Happy,sad}', 12.50, 'Ab', ROW('Rome', 1.50), '[1,2)', 'c', 'ab', B'0101', B'101', '\\x4142',
  '10.0.0.1/24', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05',
  'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'a:1 b:2', 'a & b', '(1,2)',
  '((0,0),(1,1))', '[(0,0),(1,1)]', '<(0,0),2>', '16/B374D848', '{"b": [1.0, null], "a": "X"}',
  '{"b": [1.0, null], "a": "X"}', 1234.5, 0.1, 0.1, '7', '$.a[*]'
);
"""

YES = {Profile.STANDARD: True, Profile.STRICT: True, Profile.RECIPE: True}
NO = dict.fromkeys(YES, False)


def only(*profiles: Profile) -> Mapping[Profile, bool]:
    return {profile: profile in profiles for profile in YES}


STANDARD, STRICT, RECIPE = YES
BOTH = only(STANDARD, STRICT)

SAME = [
    "mood", "moods", "price", "label", "place", "span", "code", "fixed", "bits", "varbits", "raw", "net", "block",
    "mac", "mac8", "uid", "vector", "query", "dot", "area", "lines", "ring", "lsn", "doc", "docb", "cash", "tiny",
    "big", "transaction", "path", "thing",
    "ROW(id, label)", "ARRAY[dot]", "ARRAY[area]", "ARRAY[place]", "ARRAY[doc]", "NULL",
    "NULL::int[]", "'{}'::int[]", "'[0:1]={1,2}'::int[]", "''", "interval '-1 mon +2 days -00:00:01'", "time '24:00'",
    "'infinity'::timestamptz", "'-infinity'::date", "date '4713-01-01 BC'", "date '5874897-01-01'", "true",
    "repeat('[', 3000)::text || repeat(']', 3000)", "(repeat('[', 400) || repeat(']', 400))::json",
    "(repeat('[', 3000) || repeat(']', 3000))::json", "'1e999999999'::json", "'{\"a\":1,\"a\":2}'::json", "1e131000",
    "'{[1,2),[3,4)}'::int4multirange", "'empty'::int4range", "'(,)'::tsrange", "interval 'infinity'",
]  # fmt: skip
"""Each equals itself, and nothing breaks."""

PAIRS: list[tuple[str, str, Mapping[Profile, bool]]] = [
    # numbers
    ("1", "1.00::numeric", YES),
    ("1.5::numeric", "1.5::float8", YES),
    ("0.1::float4", "0.1::float8", YES),
    ("'NaN'::numeric", "'NaN'::float8", YES),
    ("'Infinity'::numeric", "'Infinity'::float8", YES),
    ("'Infinity'::float8", "'-Infinity'::float8", NO),
    ("'Infinity'::float8", "1e308::float8", NO),
    ("'-0'::float8", "0", YES),
    ("0.3", "0.1::float8 + 0.2::float8", YES),
    ("1000000.25", "1000000.254", only(STANDARD, RECIPE)),
    ("2.675", "2.68", only(STANDARD)),
    ("1e20::float8", "1e20::float8 * 1.0000001", only(STRICT)),
    ("cash", "1234.50", YES),
    ("price", "12.5", YES),
    ("true", "1", NO),
    ("false", "0", NO),
    ("1", "'1'", only(RECIPE)),
    ("1000", "'$1,000'", only(RECIPE)),
    ("NULL::int", "0", NO),
    ("NULL::text", "''", NO),
    # text
    ("'Ab'", "' aB '", only(STANDARD, RECIPE)),
    ("'ab'::char(8)", "'ab'", YES),
    ("label", "'Ab'", YES),
    ("mood", "'Happy'", YES),
    ("mood", "'happy'", only(STANDARD, RECIPE)),
    ("code", "'c'", YES),
    ("uid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", only(STANDARD, RECIPE)),
    ("net", "'10.0.0.1/24'", YES),
    ("net", "'10.0.0.1'::inet", NO),
    ("bits", "5", NO),
    ("bits", "'0101'", YES),
    ("raw", "'AB'", NO),
    ("raw", "'\\x4142'::bytea", YES),
    ("raw", "'\\x4143'::bytea", NO),
    # dates and times
    ("date '2024-02-29'", "timestamp '2024-02-29'", BOTH),
    ("date '2024-02-29'", "'2024-02-29'", only(RECIPE)),
    ("date '2024-02-29'", "timestamp '2024-02-29 00:00:01'", NO),
    ("timestamptz '2024-01-01 02:00+02'", "timestamptz '2024-01-01 00:00Z'", YES),
    ("timestamp '2024-01-01 00:00:00.5'", "'2024-01-01 00:00:00.500000'", only(RECIPE)),
    ("'infinity'::date", "'infinity'::timestamp", YES),
    ("date '0044-03-15 BC'", "date '0044-03-15'", NO),
    ("time '10:00'", "timetz '12:00+02'", BOTH),
    ("time '10:00'", "time '10:00:01'", NO),
    ("interval '1 year'", "interval '12 months'", YES),
    ("interval '1 day'", "interval '24 hours'", YES),
    ("interval '1 month'", "interval '30 days'", YES),
    ("interval '1 day'", "interval '1 day 1 second'", only(RECIPE)),
    ("interval '36 hours'", "1.5", only(RECIPE)),
    # arrays
    ("ARRAY[1, NULL, 3]", "ARRAY[1, NULL, 3.0]", YES),
    ("ARRAY[1, NULL]", "ARRAY[1, 0]", NO),
    ("ARRAY[1, 2]", "ARRAY[2, 1]", NO),
    ("ARRAY[[1, 2], [3, 4]]", "ARRAY[1, 2, 3, 4]", NO),
    ("ARRAY[1.004, 2.5]", "ARRAY[1.0, 2.5]", only(STANDARD, RECIPE)),
    ("ARRAY[1.006, 2.5]", "ARRAY[1.0, 2.5]", NO),
    ("ARRAY[0.3]::float8[]", "ARRAY[0.1 + 0.2::float8]", YES),
    ("ARRAY['A ', NULL]", "ARRAY['a', NULL]", only(STANDARD, RECIPE)),
    ("ARRAY['NULL']", "ARRAY[NULL::text]", NO),
    ("ARRAY['a,b']", "ARRAY['a', 'b']", NO),
    ("ARRAY['1']", "ARRAY[1]", only(RECIPE)),
    ("'{}'::int[]", "NULL::int[]", NO),
    ("ARRAY[date '2024-01-01']", "ARRAY[timestamp '2024-01-01']", BOTH),
    # JSON
    ("doc", "docb", BOTH),
    ("docb", """'{"a": "X", "b": [1, null]}'::jsonb""", BOTH),
    ("docb", """'{"a": "x", "b": [1, null]}'::jsonb""", only(STANDARD)),
    ("""'{"a": 1.004}'::jsonb""", """'{"a": 1}'::jsonb""", only(STANDARD)),
    ("""'{"a": 1.006}'::jsonb""", """'{"a": 1}'::jsonb""", NO),
    ("""'{"a": "1"}'::jsonb""", """'{"a": 1}'::jsonb""", NO),
    ("""'{"a": true}'::jsonb""", """'{"a": 1}'::jsonb""", NO),
    ("""'{"A": 1}'::jsonb""", """'{"a": 1}'::jsonb""", NO),
    ("""'[1, 2]'::jsonb""", """'[2, 1]'::jsonb""", NO),
    ("""'null'::jsonb""", "NULL", only(RECIPE)),
    ("'1'::jsonb", "1", only(RECIPE)),
    # ranges: bounds are exact
    ("numrange(1.0, 2)", "numrange(1, 2.00)", BOTH),
    ("numrange(1, 2)", "numrange(1, 2.004)", NO),
    ("numrange(1, 2)", "numrange(1, 2, '[]')", NO),
    ("int4range(1, 3)", "int4range(1, 2, '[]')", YES),
    ("daterange('2024-01-01', '2024-02-01')", "tsrange('2024-01-01', '2024-02-01')", BOTH),
    ("'{[1,2),[3,4)}'::nummultirange", "'{[1.0,2),[3,4.0)}'::nummultirange", BOTH),
    ("'{[1,2),[3,4)}'::nummultirange", "'{[1,2),[3,5)}'::nummultirange", NO),
    # composites and geometry, as Postgres prints them
    ("place", "ROW('Rome', 1.50)", YES),
    ("place", "ROW('Rome', 1.51)", NO),
    ("dot", "'(1,2)'::point", YES),
    ("dot", "'(1,3)'::point", NO),
    ("vector", "'a:1 b:2'::tsvector", YES),
]  # fmt: skip


@pytest.fixture
async def things(client: VerifierClient) -> VerifierClient:
    bundle = BundleSource(name=SANDBOX, schema_sql=SCHEMA, seed_sql=SEED)
    await client.create_sandbox(SandboxRequest(sandbox_id=SANDBOX, run_id="tests", bundle=bundle))
    return client


async def matches(client: VerifierClient, profile: Profile, pairs: list[tuple[str, str]]) -> list[bool]:
    items = [VerifyItem(sql=f"SELECT {right} FROM thing", gold=f"SELECT {left} FROM thing") for left, right in pairs]
    verdicts = (await client.verify(SANDBOX, VerifyRequest(profile=profile, items=items))).verdicts
    ran = {Status.MATCH, Status.MISMATCH}
    assert [(pair, v.status, v.reason) for pair, v in zip(pairs, verdicts, strict=True) if v.status not in ran] == []
    return [verdict.status is Status.MATCH for verdict in verdicts]


@pytest.mark.parametrize("profile", Profile)
async def test_every_type_equals_itself(things: VerifierClient, profile: Profile) -> None:
    found = await matches(things, profile, [(expression, expression) for expression in SAME])
    assert [expression for expression, same in zip(SAME, found, strict=True) if not same] == []


@pytest.mark.parametrize("profile", Profile)
async def test_values_of_two_types(things: VerifierClient, profile: Profile) -> None:
    pairs = [(left, right) for left, right, _ in PAIRS]
    forth = await matches(things, profile, pairs)
    back = await matches(things, profile, [(right, left) for left, right in pairs])
    expected = [same[profile] for *_, same in PAIRS]
    assert [case for case, same, wanted in zip(PAIRS, forth, expected, strict=True) if same is not wanted] == []
    assert [case for case, same, wanted in zip(PAIRS, back, expected, strict=True) if same is not wanted] == []
