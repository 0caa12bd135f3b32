"""Which executor serves which group, and how groups move from one to another while the job runs.

May import `operators` and all below; `epoch`, `modifications` and `job` may import it.
"""
