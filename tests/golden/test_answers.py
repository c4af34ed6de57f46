"""Answers of the command line are those of the golden files."""

import pytest

from golden.answers import COMMANDS, TRAINED, make_answers, make_options
from golden.compare import check_same, read
from pictures import leave_blank


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Run all commands once."""
    with pytest.MonkeyPatch.context() as patch:
        leave_blank(patch)
        return make_answers(tmp_path_factory.mktemp("answers"))


@pytest.mark.parametrize("name", COMMANDS)
def test_an_answer(name, answers):
    check_same(answers[name], read("json", f"{name}.json"), trained=name in TRAINED)


def test_no_option_is_lost(tmp_path):
    found = make_options(tmp_path)
    for command, options in read("json", "options.json").items():
        assert set(options) <= set(found[command]), command
