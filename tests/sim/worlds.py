"""The worlds live in `sim.worlds`."""

from sim.worlds import Dice, World, flat_profile, random_workload, random_world

__all__ = ["Dice", "World", "flat_profile", "random_workload", "random_world"]
