"""Cluster operators, each a pinned Helm release."""
