"""vLLM as a child process: settings to its command line, started, watched, started again."""
