"""The one place that states the version of the package, the Pulumi package and the plugin."""

__version__ = "0.1.0"
