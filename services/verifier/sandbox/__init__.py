"""Where hostile SQL runs: a Postgres cluster per run, behind one small protocol (`protocol.SandboxDriver`)."""
