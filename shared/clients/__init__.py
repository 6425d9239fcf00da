"""Async HTTP clients of the services, one module a service."""
