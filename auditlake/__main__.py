"""`python -m auditlake`: the same as the console script."""

from auditlake.cli.start import start

if __name__ == "__main__":  # Spark's workers import the main module again
    start()
