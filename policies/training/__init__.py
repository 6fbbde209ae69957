"""What predictors learn from: recorded sequences of agents, their split, model files, and the fit."""
