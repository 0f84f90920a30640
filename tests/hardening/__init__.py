"""Harnesses that try to break the package: drawn estimation problems, hostile inputs, and injected faults.

A small version of each runs in CI. Long ones are run by hand, write a row for each finished run (:mod:`.rows`), and are
summed up on ``docs/results/hardening.md`` by ``python -m tests.hardening.rows docs/results/hardening.md ROWS…``.
"""
