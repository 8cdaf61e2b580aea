"""How well pods are placed: a published experiment on a public trace, with its baselines in the same harness."""
