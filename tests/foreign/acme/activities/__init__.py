"""What Acme's workers do outside of workflows."""
