"""What every part of the package builds on: the base of settings, names, quantities, where pods may run."""
