"""Grafana dashboards, built with Grafana's own types: one module per dashboard, metric names from `metrics`."""
