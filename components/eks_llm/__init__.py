"""Pulumi components for LLM serving on EKS: see components/README.md for a first program."""
