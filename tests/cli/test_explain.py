"""`prerank explain`: every pre-rank has words, and a wrong name gets a line."""

import os
import subprocess

import pytest

from cli.commands import COMMAND, SETTINGS, call, record, refused, said
from prerank.cli.messages import one_line_errors
from prerank.report.explanations import EXPLANATIONS


def test_all_are_listed():
    words = said(call("explain"))
    for label, explanation in EXPLANATIONS.items():
        assert f"│ {label} " in words
        assert explanation.question in words
    assert words.endswith("More of each: prerank explain NAME")


def test_all_is_told_of_each():
    for label, explanation in EXPLANATIONS.items():
        words = said(call("explain", label))
        for heading in ("asks", "ranks", "PITs too small", "blind to", "what to try"):
            assert heading in words, label
        assert words.startswith(label)
        assert explanation.question in words


def test_several_with_arguments():
    words = said(call("explain", "pca(2)+Copula"))
    assert EXPLANATIONS["pca"].question in words
    assert EXPLANATIONS["copula"].question in words


def test_json():
    done = call("explain", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    assert list(record(done)) == list(EXPLANATIONS)
    found = record(call("explain", "hdr", "--json"))
    assert list(found) == ["hdr"]
    assert found["hdr"]["question"] == EXPLANATIONS["hdr"].question


REFUSED = {
    "hdrr": "unknown prerank 'hdrr'. Did you mean 'hdr'?",
    "": "cannot read ''",
    "hdr+": "cannot read ''",
    "[red]hdr": "cannot read '[red]hdr'",
    "pca(many)": "'many' is not a number",
    "hdr(3)": "prerank 'hdr' takes no argument",
}


def test_names_that_are_refused():
    for text, words in REFUSED.items():
        assert words in refused(call("explain", text))
        assert words in refused(call("explain", text, "--json"))


@pytest.mark.parametrize("words", [("hdr", "copula"), ("--frobnicate",)], ids=" ".join)
def test_usage_that_is_not_known(words):
    done = call("explain", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words[-1] in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_output_that_cannot_be_written():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "explain", "--json"],
            env=os.environ | SETTINGS,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "Error: [Errno 28] No space left on device\n"


def test_a_reader_that_leaves_is_no_error(capsys):
    """As `head` does: typer ends the command without a word."""
    with pytest.raises(BrokenPipeError), one_line_errors():
        raise BrokenPipeError
    assert capsys.readouterr().err == ""
