"""The kinds of operators: of each its schema, its SQL, the task of its slots, its tables in a savepoint.

May import `sinks`, `sources`, `state` and all below; `flow`, `placement`, `epoch` and all above may import it.
"""
