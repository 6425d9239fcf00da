"""Domain bundles that ship with sqlclimb: one folder a database."""
