"""Suites: further seeds for a bundle, chosen so that they tell golds apart from queries one edit away.

Read in this order: `study` (what the golds' parse trees say: mutants, constants, links), `catalog` (the tables and
their rows), `generation` (candidate seeds), `workbench` (a throw-away cluster that runs golds and mutants on them),
`measuring` (what each seed kills), `selection` (the greedy choice), `service` (the whole), `runs` (one over HTTP).
"""
