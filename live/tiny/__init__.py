"""A model small enough to train in a minute, for trying hosts on a CPU."""
