"""How a SQL file or a live database becomes a domain bundle, and what a bundle lacks. Only `sqlclimb domain` asks."""
