"""Pictures of results; they need the extra ``plot``."""
