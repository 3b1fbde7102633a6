"""Which algorithm and which sizes."""
