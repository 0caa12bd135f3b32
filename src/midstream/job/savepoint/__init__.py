"""Savepoints: the whole state of a job as Parquet, written while it runs and started from."""
