"""Declared aggregates: what a user declares, how accumulators are merged, and the task."""
