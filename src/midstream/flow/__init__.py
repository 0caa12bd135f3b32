"""Flows as users write them: streams, what is built from several operators, and triggers.

May import `operators` and all below; `modifications`, `job` and the tools may import it. It starts jobs lazily.
"""
