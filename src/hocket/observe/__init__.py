"""What others see of a running job: `prometheus`."""
