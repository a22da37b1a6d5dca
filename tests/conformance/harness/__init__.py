"""The conformance runner: fetches the allocation tests of other projects, builds them and runs them
preloaded."""
