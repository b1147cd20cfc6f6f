"""The chart on a Kubernetes of one node that runs its pods."""
