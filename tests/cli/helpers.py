"""Running the command line in this process."""

from dataclasses import dataclass

from typer.testing import CliRunner

from nscaching.cli.main import app


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


def invoke(*arguments):
    """Run a command in this process."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return Outcome(result.exit_code, result.stdout, result.stderr)


def complaint(*arguments):
    """Return what a command that must be refused says: exit code 2, one or two sentences."""
    outcome = invoke(*arguments)
    assert outcome.code == 2, outcome
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr
    said = outcome.stderr.strip()
    assert said
    assert "\n" not in said
    return said
