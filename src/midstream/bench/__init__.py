"""Benchmarks: what an epoch of Midstream costs beside what Spark itself offers.

`throughput` measures rows per second of one count-and-sum per key, done in five ways; `epoch` measures the
floor of an epoch, and how its time grows with the state. Both compare every result with one computed separately
before they print a figure, say what the timed region includes, and can write a JSON record.
"""
