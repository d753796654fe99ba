"""Facts as data, each file with its sources and date: instance types, models, charts, images, EKS versions.

The YAML files hold the facts; the module beside each gives them types. No file here decides anything.
"""
