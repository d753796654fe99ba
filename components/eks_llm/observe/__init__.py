"""What watches a platform: names of metrics, rules and alerts, dashboards."""
