"""Spark itself: sessions, Java, exceptions, executors, types.

Everything above may import it; it knows nothing of plans, state or jobs.
"""
