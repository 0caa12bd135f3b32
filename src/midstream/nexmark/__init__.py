"""Nexmark: the events of an auction site, generated from a counter, and nine queries over them with true results."""
