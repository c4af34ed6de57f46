"""The audit never says that nothing is known of packages which were not looked up."""

import audit
import pytest

CLEAN = {"name": "one", "version": "1", "vulns": []}
FLAWED = {"name": "two", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}]}
SKIPPED = {"name": "three", "skip_reason": "three (3) could not be found"}


@pytest.mark.parametrize(
    ("packages", "status", "words"),
    [
        ([CLEAN], 0, "no vulnerability is known of 1 packages"),
        ([CLEAN, FLAWED], 1, "two 2: CVE-1 (mended in 2.1)"),
        ([CLEAN, SKIPPED], 3, "not audited: the advisories of 1 of 2 packages"),
        ([FLAWED, SKIPPED], 1, "not audited: the advisories of 1 of 2 packages"),
        ([], 3, "not audited: the advisories of 0 of 0 packages"),
    ],
)
def test_the_status_tells_known_from_unknown(packages, status, words):
    said, code = audit.verdict(packages)
    assert code == status
    assert words in said
    assert ("no vulnerability" in said) == (status == 0)


def test_what_is_known_of_one_file_is_said_where_another_has_no_answer(monkeypatch):
    answers = {"a": [CLEAN, FLAWED], "b": "no route", "c": [CLEAN]}
    monkeypatch.setattr(audit, "asked", answers.__getitem__)
    said, status = audit.audit(["a", "b"])
    assert status == audit.FOUND
    assert "CVE-1" in said
    assert "no answer for b (no route)" in said
    assert audit.audit(["c", "b"])[1] == audit.UNKNOWN
    assert audit.audit(["c"])[1] == 0


def test_a_file_that_cannot_be_audited_is_no_clean_one(tmp_path):
    """Without pip-audit, and with it for lack of the file."""
    said, code = audit.audit([str(tmp_path / "nowhere.txt")])
    assert code == audit.UNKNOWN
    assert said.startswith("not audited: pip-audit has no answer for ")
