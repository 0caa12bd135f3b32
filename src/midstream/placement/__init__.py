"""The placement of groups: which executor serves which, and how they move while the job runs.

May import `operators` and all below; `epoch`, `modifications` and `job` may import it.
"""
