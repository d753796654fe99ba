"""Why a service has the replicas it has: what a cluster and its Prometheus say, and the HPA's arithmetic on it."""
