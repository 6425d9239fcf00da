"""What the services have in common: contracts, clients, settings, database access, statistics, telemetry, auth."""
