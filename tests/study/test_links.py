"""A study folder from someone else: nothing outside of it is read, written or removed."""

import pytest

from prerank.errors import InputError
from prerank.study import Plan, Store


@pytest.mark.parametrize(
    "part", ["plan.toml", "log.jsonl", "results", "base", "checkpoints", "locks", "report"]
)
def test_links_out_of_a_study(part, tmp_path):
    store = Store(tmp_path / "study", Plan.preset("quick"))
    elsewhere = tmp_path / "elsewhere"
    path = store.folder / part
    if path.exists():
        path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with pytest.raises(InputError, match=r"link that leads out of"):
        Store(store.folder)


def test_a_linked_result_is_not_read(tmp_path):
    store = Store(tmp_path / "study", Plan.preset("quick"))
    (tmp_path / "secret").write_bytes(b"PAR1")
    (store.folder / "results").mkdir()
    path = store.folder / "results" / f"{store.units[0].stem}.parquet"
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match=r"link that leads out of"):
        store.results()


def test_a_link_to_a_study_is_followed(tmp_path):
    store = Store(tmp_path / "study", Plan.preset("quick"))
    (tmp_path / "link").symlink_to(store.folder)
    assert Store(tmp_path / "link").plan == store.plan


@pytest.mark.parametrize("text", ["name = " + "[" * 5000 + "]" * 5000, "a = " + "{b = " * 5000])
def test_plans_of_brackets(text, tmp_path):
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(InputError, match="TOML"):
        Plan.read(tmp_path / "plan.toml")


def test_a_path_that_is_no_text():
    with pytest.raises(InputError, match="null"):
        Plan.read("a\0.toml")
