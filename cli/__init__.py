"""The `sqlclimb` command: a thin client of the services, and the local stack."""
