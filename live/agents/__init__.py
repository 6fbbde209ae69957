"""A workflow host over the OpenAI API: real requests, and the speculation controller that the simulator drives."""
