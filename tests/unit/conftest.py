"""Property tests draw the same examples in every run, and keep no record of earlier ones."""

from hypothesis import settings

settings.register_profile("same every time", derandomize=True, database=None, deadline=None, max_examples=50)
settings.load_profile("same every time")
