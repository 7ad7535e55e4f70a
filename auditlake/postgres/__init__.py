"""Everything that talks to the source. Nothing here knows the lake."""
