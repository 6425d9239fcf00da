"""The five services. A service imports `shared`, never another service: they meet over HTTP only."""
