"""Tasks with late rewards whose states are numbers or small features. Imports types, checks and the models' tables."""
