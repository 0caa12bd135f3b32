"""Spools: numbered records in Arrow files, their one writer, and the streaming source that reads them."""
