"""Keyed state: key encoding, stores of one group, change logs, snapshots, and the cache that keeps them current."""
