"""From a call to the program that is to run: its arguments, its budget, the executable of the last call."""
