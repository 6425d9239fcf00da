"""Bodies that cross between services, one module a service. No torch, Ray or vLLM is imported here."""
