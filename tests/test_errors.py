"""What errors say to do."""

import shlex

from nscaching.errors import plural, resume_command


def test_a_command_to_resume_is_one_that_a_shell_takes():
    command = resume_command("train", "my runs/it's one")
    assert shlex.split(command) == ["nscaching", "train", "--resume", "--out", "my runs/it's one"]
    assert resume_command("tune", "runs/a") == "nscaching tune --resume --out runs/a"


def test_one_thing_is_no_plural():
    assert [plural(n, "fact") for n in (0, 1, 2000)] == ["0 facts", "1 fact", "2,000 facts"]
    assert plural(1, "entity", "entities", form="+,") == "+1 entity"
    assert plural(2, "entity", "entities", form="+,") == "+2 entities"
