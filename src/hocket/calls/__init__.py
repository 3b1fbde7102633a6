"""The way of a call, from its arguments to the core and back."""
