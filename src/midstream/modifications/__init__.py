"""Changes of a running job: as values, their phases, the queue, the dry run, the shadow.

May import `epoch` and all below; `job` and the tools may import it.
"""
