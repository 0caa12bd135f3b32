"""Keyed functions: what a user declares, and the task that calls it key by key."""
