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
    WHERE p.pronamespace = 'pg_catalog'::regnamespace
      AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
      AND (p.provolatile = 'v' OR (p.proname LIKE 'pg\\_%' AND p.proname <> 'pg_typeof') OR p.proname LIKE ANY (ARRAY[
            '%\\_to\\_xml%', '%\\_xmlschema', 'xml%', 'ts\\_stat', 'ts\\_rewrite', 'lo\\_%', 'txid\\_%', 'inet\\_%',
            'to\\_reg%', 'current\\_setting', 'obj\\_description', 'col\\_description', 'version']))
  LOOP
    EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', f.signature);
    IF f.name NOT LIKE ALL (ARRAY['pg\\_%', 'lo\\_%', '%\\_to\\_xml%', 'ts\\_stat'])
       OR f.name = 'pg_get_serial_sequence' THEN
      EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO owner', f.signature);
    END IF;
  END LOOP;
END $$;
"""
"""For `template1`, as the administrator: nothing volatile, nothing that reads files, settings, catalogs or runs SQL
given as text. `owner` loads bundles, whose seeds may draw random numbers and set sequences; it can do little more."""


def after_load(database: str, schemas: list[str]) -> sql.Composed:
    """What the two reading roles get in one loaded database, whose own schemas are `schemas`. As the administrator."""
    name = sql.Identifier(database)
    parts = [
        sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(name),
        sql.SQL("GRANT CONNECT ON DATABASE {} TO candidate, gold").format(name),
    ]
    for schema in schemas:
        parts.append(sql.SQL("GRANT USAGE ON SCHEMA {} TO candidate, gold").format(sql.Identifier(schema)))
        parts.append(
            sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA {} TO candidate, gold").format(sql.Identifier(schema))
        )
    return sql.SQL("; ").join(parts)
