"""`python -m prerank`."""

from prerank.cli import app

if __name__ == "__main__":
    app(prog_name="prerank")
