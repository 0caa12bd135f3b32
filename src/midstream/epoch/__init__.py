"""One micro-batch: decide, run, commit, publish; and the Spark query under a job.

May import `placement` and all below; `modifications` and `job` may import it.
"""
