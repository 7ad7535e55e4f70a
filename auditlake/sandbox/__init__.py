"""SQL of strangers, each statement in a process that can be ended at any time."""
