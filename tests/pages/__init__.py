"""The bridge's pages over real HTTP: signing in, answering, and everything that must not work."""
