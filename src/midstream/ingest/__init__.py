"""Ingest of records over TCP and HTTP, acknowledged once they are on disk in a spool."""
