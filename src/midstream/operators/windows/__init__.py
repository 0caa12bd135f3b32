"""Windows of event time: where rows belong, the panes that windows share, and their tasks."""
