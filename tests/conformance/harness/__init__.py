"""The conformance runner: fetches others' allocation tests, builds them and runs them preloaded."""
