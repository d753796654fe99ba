"""The laptop platform: the tools that the tests and the local stack need, and how they start."""
