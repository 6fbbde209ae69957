"""What every host of the speculation controller shares: views of the workload, books of fills, and the event loop."""
