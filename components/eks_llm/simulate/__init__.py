"""What a scaling policy will do to given traffic, before it is deployed: `eks-llm simulate`."""
