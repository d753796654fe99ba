"""The commands of `eks-llm`, one module each; `cli.py` lists them."""
