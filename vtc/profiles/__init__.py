"""What clients and models are like, as YAML files: reading them, checking them, and choosing by request."""
