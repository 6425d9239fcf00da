"""What the candidate role may do, read off the server's own catalogs; and that the parser knows the same functions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from services.verifier.functions import ALLOWED_FUNCTIONS, calls_harm
from services.verifier.parser import Parser
from services.verifier.sandbox.local import LocalDriver
from services.verifier.sandbox.protocol import Role
from tests.verifier.attacks.observing import BUNDLE, connect
from tests.verifier.conftest import temporary_folder

MEMORY_BYTES = 256 * 1024**2

BY_EXTENSIONS = {"levenshtein", "metaphone", "similarity", "soundex", "unaccent", "word_similarity"}
"""Allowed functions that a bundle may bring by an extension."""

KEYWORDS = {"localtime"}
"""Allowed names that are grammar, not functions."""

MAY_BE_COLUMNS = {"is_normalized", "xml"}
"""Revoked functions of one argument that the parser lets pass as `x.name`; see `calls_harm`."""

UNUSED_BY_THE_SERVER = """
    NOT EXISTS (SELECT FROM pg_operator WHERE p.oid IN (oprcode, oprrest, oprjoin))
    AND NOT EXISTS (SELECT FROM pg_cast WHERE castfunc = p.oid)
    AND NOT EXISTS (SELECT FROM pg_type WHERE p.oid IN
                    (typinput, typoutput, typreceive, typsend, typmodin, typmodout, typanalyze, typsubscript))
    AND NOT EXISTS (SELECT FROM pg_amproc WHERE amproc = p.oid)
    AND NOT EXISTS (SELECT FROM pg_aggregate WHERE p.oid IN
                    (aggtransfn, aggfinalfn, aggcombinefn, aggserialfn, aggdeserialfn, aggmtransfn, aggminvtransfn,
                     aggmfinalfn))
    AND NOT EXISTS (SELECT FROM pg_conversion WHERE conproc = p.oid)
    AND NOT EXISTS (SELECT FROM pg_proc supported WHERE supported.prosupport = p.oid)
    AND NOT 'internal'::regtype = ANY (p.proargtypes)
"""

MAY = "has_function_privilege('candidate', p.oid, 'execute')"


@pytest.fixture(scope="module")
def admin() -> Iterator[psycopg.Connection[Any]]:
    """The administrator of a cluster with the attacked bundle."""
    with temporary_folder() as folder:
        driver = LocalDriver(folder, MEMORY_BYTES, None)
        cluster = driver.start(BUNDLE)
        with connect(cluster.host, Role.ADMIN) as connection:
            yield connection
        driver.close()


def names(admin: psycopg.Connection[Any], condition: str) -> set[str]:
    """Functions of pg_catalog, `p`, for which a condition holds."""
    query = f"SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND {condition}"
    return {name for (name,) in admin.execute(query.encode())}


def test_a_candidate_may_execute_nothing_volatile(admin: psycopg.Connection[Any]) -> None:
    assert names(admin, f"{MAY} AND p.provolatile = 'v'") == set()


def test_a_candidate_may_execute_every_allowed_function(admin: psycopg.Connection[Any]) -> None:
    assert ALLOWED_FUNCTIONS - names(admin, MAY) == BY_EXTENSIONS | KEYWORDS


def test_what_else_a_candidate_may_execute_is_known(admin: psycopg.Connection[Any]) -> None:
    lines = (Path(__file__).parent / "executable.txt").read_text().splitlines()
    known = {name for line in lines if not line.startswith("#") for name in line.split()}
    assert names(admin, f"{MAY} AND {UNUSED_BY_THE_SERVER}") - ALLOWED_FUNCTIONS == known


def test_gold_and_candidate_have_the_same_rights(admin: psycopg.Connection[Any]) -> None:
    assert names(admin, f"{MAY} <> has_function_privilege('gold', p.oid, 'execute')") == set()


def test_a_candidate_reads_no_relation_of_the_system_and_creates_nothing(admin: psycopg.Connection[Any]) -> None:
    readable = admin.execute(
        """SELECT oid::regclass::text FROM pg_class
           WHERE relkind IN ('r', 'v', 'm', 'f', 'p', 'S') AND relnamespace <> 'public'::regnamespace
           AND has_any_column_privilege('candidate', oid, 'select')"""
    ).fetchall()
    creates = admin.execute(
        """SELECT nspname FROM pg_namespace WHERE has_schema_privilege('candidate', oid, 'create')
           UNION SELECT datname FROM pg_database WHERE has_database_privilege('candidate', oid, 'create, temporary')
           UNION SELECT lanname FROM pg_language
                 WHERE lanpltrusted AND has_language_privilege('candidate', oid, 'usage')
           UNION SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')
                 AND has_table_privilege('candidate', oid, 'insert, update, delete, truncate, references, trigger')"""
    ).fetchall()
    member = admin.execute("SELECT count(*) FROM pg_auth_members WHERE member = 'candidate'::regrole").fetchall()
    assert (readable, creates, member) == ([], [], [(0,)])


def test_no_notation_reaches_a_function_beyond_the_allowed(admin: psycopg.Connection[Any]) -> None:
    parser = Parser(processes=2)
    notations = (
        'SELECT "{}"(a) FROM t',
        'SELECT pg_catalog."{}"()',
        'SELECT * FROM t, "{}"(t.a)',
        'SELECT * FROM ROWS FROM (generate_series(1, 2), "{}"(1))',
        'SELECT 1 FROM t ORDER BY sum("{}"(a)) OVER ()',
        'SELECT U&"{}" (VARIADIC a) FROM t',
    )
    beyond = names(admin, "true") - ALLOWED_FUNCTIONS
    statements = [notation.format(name) for name in beyond for notation in notations]
    as_attribute = ('SELECT g."{}" FROM abs(1) g', 'SELECT (g)."{}" FROM abs(1) g', 'SELECT a.b.c."{}" FROM a.b.c')
    one_argument = f"""NOT {MAY} AND p.pronargs - p.pronargdefaults <= 1 AND (p.pronargs >= 1 OR p.provariadic <> 0)
                       AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
                       AND NOT EXISTS (SELECT FROM unnest(p.proargtypes) t
                                       WHERE t IN ('internal'::regtype, 'cstring'::regtype))"""
    called = names(admin, one_argument)
    assert {name for name in called if not calls_harm(name)} == MAY_BE_COLUMNS
    statements += [notation.format(name) for name in called - MAY_BE_COLUMNS for notation in as_attribute]
    analyses, _ = parser.parse(statements, ())
    parser.close()
    assert len(statements) > 10_000
    assert [sql for sql in statements if analyses[sql].refused is None] == []
