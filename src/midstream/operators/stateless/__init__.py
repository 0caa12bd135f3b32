"""Kinds of operators without state: each a small class that says what it means."""
