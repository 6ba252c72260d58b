"""What errors say to do."""

import shlex

from nscaching.errors import resume_command


def test_a_command_to_resume_is_one_that_a_shell_takes():
    command = resume_command("train", "my runs/it's one")
    assert shlex.split(command) == ["nscaching", "train", "--resume", "--out", "my runs/it's one"]
    assert resume_command("tune", "runs/a") == "nscaching tune --resume --out runs/a"
