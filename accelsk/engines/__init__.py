"""The ways of computing, one module each; `base` says what an engine is."""
