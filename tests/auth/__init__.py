"""Who gets in, and what for."""
