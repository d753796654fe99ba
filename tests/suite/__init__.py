"""What `./dev test` runs: levels side by side, what a change reaches, and one summary."""
