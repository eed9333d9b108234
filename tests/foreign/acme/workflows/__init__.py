"""Acme's workflows."""
