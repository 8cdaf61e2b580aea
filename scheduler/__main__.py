"""Entry point of `muster`, `kubectl-muster` and `python -m scheduler`."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from scheduler.cli.main import app

    app(prog_name="muster")


if __name__ == "__main__":
    main()
