"""Storage on disk between processes, for plans with their executables and for rules that have been read."""
