"""The machines that programs are planned for."""
