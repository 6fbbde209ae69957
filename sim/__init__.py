"""The discrete-event model of GPU serving engines; the only package that knows simpy."""
