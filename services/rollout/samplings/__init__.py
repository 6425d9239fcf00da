"""Samplings from start to end: which groups are asked, when, how many at once, and what the ledger holds of them."""
