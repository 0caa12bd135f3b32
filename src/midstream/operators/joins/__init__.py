"""Joins of two keyed streams: which rows match, what is kept of each side, and the task."""
