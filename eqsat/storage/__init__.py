"""What is kept on disk between processes: plans, with their executables, and rules that have been read."""
