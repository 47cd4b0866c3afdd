"""What is known of the devices that programs are for, and of their compilers."""
