"""The Temporal side of the bridge, against a real dev server."""
