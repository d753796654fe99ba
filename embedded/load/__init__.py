"""The load generator of `./dev load`: streams against a service, from processes of their own."""
