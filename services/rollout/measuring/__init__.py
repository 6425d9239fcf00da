"""What the ledger's rows say: reports, bands, deltas, flips, scans, replays."""
