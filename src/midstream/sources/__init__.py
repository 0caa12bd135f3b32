"""Sources: several streams in one query, and the heartbeat that keeps epochs coming."""
