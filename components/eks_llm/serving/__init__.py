"""Inference services: what is deployed per model, and how it scales and is watched."""
