"""Settings of the whole suite: hypothesis draws the same examples everywhere and knows no deadline."""

from hypothesis import settings

# Two shared cores make single examples slow now and then, which says nothing about the code.
settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.load_profile("reproducible")
