"""Modules that need an extra which is not installed are not searched for doctests."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["policies/predictors/_torch_fit.py"]
