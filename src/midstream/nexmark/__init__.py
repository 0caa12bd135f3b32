"""Nexmark: the events of an auction site, made from a counter, and nine queries over them with their true results."""
