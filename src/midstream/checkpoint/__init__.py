"""Every durable record, the journal that reads and writes them, and the only place that knows a path.

May import `plan` and `spark`; `state`, `sources`, `sinks` and all above may import it.
"""
