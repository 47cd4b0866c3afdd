"""Running scripts as they are, with the functions that they compile optimised: `eqsat run`."""
