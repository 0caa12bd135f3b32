"""State as sorted runs: immutable Arrow files, in the order of group and key; of each key the newest run has the value.

docs/design/2026-11-18-sorted-runs.md says what was decided on which measurements, and what is missing.
"""
