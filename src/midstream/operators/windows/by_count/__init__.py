"""Windows by the number of rows: their rules, the panes of open ones, and the task."""
