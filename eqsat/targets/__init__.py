"""What is known of the machines that programs are made for."""
