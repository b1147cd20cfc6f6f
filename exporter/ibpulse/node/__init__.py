"""The parts of the daemon that sample a node, aggregate its samples and record what happened on it."""
