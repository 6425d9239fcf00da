"""The verifier: a model's reply becomes SQL, runs in a sandboxed Postgres, and is compared with the gold's result.

Read in this order: `extraction` (reply to SQL), `statement` (may it run), `sandbox/` (where it runs), `values` and
`comparison` (is the result right), `verdicts` (what it earns), `service` (all of it together).
"""
