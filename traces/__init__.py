"""What happened: the workload schema, importers, generators, the run log's tables and metrics over them."""
