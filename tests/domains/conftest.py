"""One scratch database on the session's real PostgreSQL 18; each use begins with an empty `public` schema."""

from collections.abc import Iterator

import psycopg
import pytest


@pytest.fixture(scope="session")
def scratch(control_cluster: str) -> Iterator[psycopg.Connection]:
    """A connection, autocommit. A new schema is much quicker than a new database."""
    with psycopg.connect(control_cluster, autocommit=True) as admin:
        admin.execute("CREATE DATABASE bundles TEMPLATE template0")
    with psycopg.connect(control_cluster.rsplit("/", 1)[0] + "/bundles", autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        yield connection


@pytest.fixture
def database(scratch: psycopg.Connection) -> psycopg.Connection:
    """The scratch database, empty."""
    return emptied(scratch)


def emptied(connection: psycopg.Connection) -> psycopg.Connection:
    """The same connection with nothing in `public`."""
    connection.execute("DROP SCHEMA public CASCADE")
    connection.execute("CREATE SCHEMA public")
    return connection
