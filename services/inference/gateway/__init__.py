"""In front of the engines: which replicas there are, which one a request goes to, and the request passed on."""
