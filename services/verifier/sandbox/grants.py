"""The first wall: what the candidate role may touch, as SQL. Run in the template, every database inherits it."""

from psycopg import sql

TEMPLATE_SQL = """
CREATE ROLE owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
CREATE ROLE candidate LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT CONNECTION LIMIT 50;
CREATE ROLE gold LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT CONNECTION LIMIT 50;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
REVOKE USAGE ON LANGUAGE plpgsql, sql FROM PUBLIC;
GRANT USAGE ON LANGUAGE plpgsql, sql TO owner;
REVOKE SELECT ON ALL TABLES IN SCHEMA pg_catalog FROM PUBLIC;
REVOKE SELECT ON ALL TABLES IN SCHEMA information_schema FROM PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA pg_catalog TO owner;
DO $$
DECLARE f record;
BEGIN
  FOR f IN
    SELECT p.oid::regprocedure AS signature, p.proname AS name FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname <> 'pg_typeof'
      AND (
        p.provolatile = 'v'
        OR p.proname LIKE ANY (ARRAY['pg\\_%', 'lo\\_%', 'txid\\_%', 'xml%', 'xpath%'])
        OR p.proname IN ('ts_stat', 'ts_rewrite', 'normalize', 'is_normalized', 'satisfies_hash_partition')
        OR p.provolatile = 's' AND p.proname LIKE ANY (ARRAY[
          '%\\_to\\_xml%', '%\\_xmlschema', '%\\_description', '%\\_privilege', '%\\_validator', 'inet\\_%',
          'to\\_reg%', 'current\\_s%', 'current\\_user', 'session\\_user', 'system\\_user', 'getpgusername',
          'getdatabaseencoding', 'version', 'aclexplode', 'row\\_security\\_active', 'mxid\\_age', 'format\\_type',
          'oidvectortypes', 'get\\_current\\_ts\\_config'])
      )
  LOOP
    EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', f.signature);
    IF f.name NOT LIKE ALL (ARRAY['pg\\_%', 'lo\\_%', '%\\_to\\_xml%', 'ts\\_stat'])
       OR f.name = 'pg_get_serial_sequence' THEN
      EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO owner', f.signature);
    END IF;
  END LOOP;
END $$;
"""
"""For `template1`, as the administrator. What is revoked from all: whatever is volatile; reads files, settings, roles,
catalogs or the connection; runs SQL given as text; and `normalize`, whose sorting cannot be interrupted.
`owner` loads bundles, whose seeds may draw random numbers and set sequences; it can do little more."""

REVOKE_DEFINERS_SQL = """
DO $$
DECLARE f record;
BEGIN
  FOR f IN
    SELECT p.oid::regprocedure AS signature FROM pg_catalog.pg_proc p
    WHERE p.prosecdef AND p.pronamespace <> 'pg_catalog'::regnamespace
  LOOP
    EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC, candidate, gold', f.signature);
  END LOOP;
END $$
"""
"""A bundle's SECURITY DEFINER routines run with its owner's rights, who may read catalogs and write."""


def after_load(database: str, schemas: list[str]) -> sql.Composed:
    """What the two reading roles get in one loaded database, whose own schemas are `schemas`. As the administrator."""
    name = sql.Identifier(database)
    parts: list[sql.Composable] = [
        sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(name),
        sql.SQL("GRANT CONNECT ON DATABASE {} TO candidate, gold").format(name),
        sql.SQL(REVOKE_DEFINERS_SQL),
    ]
    for schema in schemas:
        parts.append(sql.SQL("GRANT USAGE ON SCHEMA {} TO candidate, gold").format(sql.Identifier(schema)))
        parts.append(
            sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA {} TO candidate, gold").format(sql.Identifier(schema))
        )
    return sql.SQL("; ").join(parts)
