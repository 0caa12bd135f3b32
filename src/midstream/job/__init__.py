"""A job: starting it, watching it, stopping it, savepoints.

May import everything but the tools beside it: the command, the test kit, the benchmarks.
"""
