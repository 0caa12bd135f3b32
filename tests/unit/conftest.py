"""Property tests draw the same examples in every run and keep no record of earlier ones; `make test-all` draws more."""

import os

from hypothesis import settings

settings.register_profile("few", derandomize=True, database=None, deadline=None, max_examples=40)
settings.register_profile("many", settings.get_profile("few"), max_examples=200)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))
