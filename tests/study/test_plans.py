"""Plans come back as they were written, and name what is wrong with them."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prerank.datasets import DATASETS, PUBLISHED_SEEDS, SYNTHETIC
from prerank.errors import InputError, InputTypeError, PrerankError
from prerank.preranks import parse
from prerank.study import NONE, PRESETS, Plan
from prerank.training import Settings
from study.tiny import LABELS, tiny

# Presets


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_plans_of_their_name(name):
    plan = Plan.preset(name)
    assert plan.name == name
    assert Plan.read(name) == plan
    assert plan.variants[0] == NONE  # the others go on from there
    known = {record.name for record in DATASETS} | set(SYNTHETIC)
    assert set(plan.datasets) <= known


@pytest.mark.parametrize("name", ["paper-exact", "paper-as-published"])
def test_presets_of_the_paper_have_its_variants_and_settings(name):
    plan = Plan.preset(name)
    others = [label for label in LABELS if label not in ("marginal", "pca")]
    combined = [f"{first}+{other}" for first in ("marginal", "pca(0.8)") for other in others]
    assert list(plan.variants) == [NONE, *LABELS, *combined]
    assert len(plan.datasets) == 14
    assert plan.seeds == PUBLISHED_SEEDS
    assert (plan.n_components, plan.hidden, plan.n_samples) == (5, (100, 100), 100)
    assert plan.tau == 100
    assert plan.budget == 0.10
    assert plan.strengths == "auto"
    training = plan.training
    assert (training.lr, training.batch_size, training.max_epochs) == (1e-4, 256, 5000)
    assert (training.patience, training.min_delta) == (15, 1e-4)


def test_presets_of_the_paper_differ_in_the_protocol_alone():
    one, other = (Plan.preset(f"paper-{name}") for name in ("exact", "as-published"))
    assert (one.protocol, other.protocol) == ("exact", "published")
    assert one.datasets == other.datasets
    assert one.training == other.training


def test_quick_needs_no_files():
    assert set(Plan.preset("quick").datasets) <= set(SYNTHETIC)


# Round trips


def finite(low, **options):
    return st.floats(low, allow_nan=False, allow_infinity=False, **options)


def lists_of(values, **options):
    return st.lists(values, min_size=1, max_size=5, unique=True, **options).map(tuple)


TERMS = st.sampled_from([*LABELS, "pca(0.8)", "pca(2)", "dependency(2)"])
VARIANTS = st.just(NONE) | st.lists(
    TERMS, min_size=1, max_size=3, unique_by=lambda term: term.split("(")[0]
).map("+".join)
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]))
SETTINGS = st.builds(
    Settings,
    lr=finite(1e-12),
    batch_size=st.integers(1, 10**6),
    min_steps=st.integers(1, 10**6),
    max_epochs=st.integers(1, 10**6),
    patience=st.integers(1, 10**9),
    min_delta=finite(0.0),
)
PROTOCOLS = st.fixed_dictionaries(
    {
        "protocol": st.just("exact"),
        "strengths": st.just("auto") | lists_of(finite(0.0, exclude_min=True)),
    }
) | st.fixed_dictionaries(
    {"protocol": st.just("published"), "strengths": st.sampled_from(["auto", (3.0,)])}
)
PLANS = st.builds(
    lambda protocol, **entries: Plan(**protocol, **entries),
    PROTOCOLS,
    name=WORDS,
    datasets=lists_of(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,20}", fullmatch=True)),
    variants=lists_of(VARIANTS),
    seeds=lists_of(st.integers(0, 2**62)),
    budget=finite(0.0),
    n_samples=st.integers(2, 10**6),
    tau=finite(1e-300),
    n_components=st.integers(1, 100),
    hidden=st.lists(st.integers(1, 1000), min_size=1, max_size=5).map(tuple),
    n_null=st.integers(1, 10**6),
    training=SETTINGS,
)


@settings(max_examples=60)
@given(PLANS)
def test_a_plan_comes_back_from_its_text(plan):
    assert Plan.from_toml(plan.to_toml()) == plan
    assert plan.changed({}) == plan
    assert plan.changed({"n_null": str(plan.n_null)}) == plan


def test_a_plan_comes_back_from_a_file(tmp_path):
    plan = tiny(name='quoted "words" \\ déjà')
    path = tmp_path / "plan.toml"
    path.write_text(plan.to_toml(), encoding="utf-8")
    assert Plan.read(path) == plan
    assert Plan.read(str(path)) == plan


def test_a_name_may_hold_a_tabulator():
    plan = tiny(name="one\ttwo")
    assert Plan.from_toml(plan.to_toml()) == plan


@pytest.mark.parametrize("sign", ["\n", "\r", "\x00", "\x1b", "\x7f"], ids=repr)
def test_names_with_control_characters_come_back_or_are_refused(sign):
    try:
        plan = tiny(name=f"one{sign}two")
    except InputError:
        return
    assert Plan.from_toml(plan.to_toml()) == plan


@pytest.mark.parametrize(
    "changes",
    [
        {"gradient_bound": 1.0},
        {"fine_tune": False},
        {"holdout_offset": False},
        {"stop_on": "score"},
    ],
    ids=str,
)
def test_no_setting_is_lost_in_silence(changes):
    settings = Settings(lr=1e-2, batch_size=256, max_epochs=3, **changes)
    try:
        plan = tiny(training=settings)
    except InputError:
        return
    assert Plan.from_toml(plan.to_toml()) == plan


def test_whole_numbers_may_stand_for_others():
    text = toml(budget="1", tau="50", strengths="[1, 10]") + "[training]\nlr = 1\n"
    plan = Plan.from_toml(text)
    assert (plan.budget, plan.tau, plan.strengths, plan.training.lr) == (1.0, 50.0, (1.0, 10.0), 1)
    assert all(isinstance(value, float) for value in (plan.budget, plan.tau, *plan.strengths))
    assert Plan.from_toml(plan.to_toml()) == plan


def test_what_is_left_out_is_as_in_the_paper():
    plan = Plan.from_toml('name = "mine"\ndatasets = ["air"]\nvariants = ["none"]\n')
    default = Plan("mine", ("air",), ("none",))
    assert plan == default
    assert plan.training == Plan.preset("paper-exact").training


# Bad entries

GOOD = {
    "name": '"mine"',
    "datasets": '["ar1"]',
    "variants": '["none", "hdr"]',
}


def toml(**changes):
    return "".join(f"{name} = {value}\n" for name, value in (GOOD | changes).items())


def training(line):
    return toml() + f"[training]\n{line}\n"


UNKNOWN = [
    (toml(strenghts="[1.0]"), "strenghts"),
    (toml(device='"cuda"'), "device"),
    (training("momentum = 0.9"), "momentum"),
    (toml() + "[seeds]\nfirst = 1\n", "seeds"),
    (toml() + "[notes]\n", "notes"),
]


@pytest.mark.parametrize(("text", "name"), UNKNOWN, ids=[name for _, name in UNKNOWN])
def test_unknown_entries_are_named(text, name):
    with pytest.raises((InputError, InputTypeError), match=name):
        Plan.from_toml(text)


WRONG_TYPES = [
    ("name", "3"),
    ("name", '["mine"]'),
    ("datasets", '"ar1"'),
    ("datasets", "[1]"),
    ("variants", '"none"'),
    ("variants", '[["none"]]'),
    ("protocol", "1"),
    ("protocol", "true"),
    ("seeds", "0"),
    ("seeds", '["0"]'),
    ("seeds", "[true]"),
    ("seeds", "[1.5]"),
    ("strengths", "3.0"),
    ("strengths", '["1"]'),
    ("strengths", "[true]"),
    ("strengths", "[1979-05-27]"),
    ("budget", '"10%"'),
    ("budget", "true"),
    ("n_samples", "20.5"),
    ("n_samples", '"many"'),
    ("tau", "[100.0]"),
    ("n_components", "true"),
    ("hidden", "100"),
    ("hidden", "[[100]]"),
    ("n_null", "1e3"),
    ("training", "3"),
]


@pytest.mark.parametrize(("name", "value"), WRONG_TYPES, ids=str)
def test_entries_of_the_wrong_type_are_named(name, value):
    with pytest.raises(InputTypeError, match=name):
        Plan.from_toml(toml(**{name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", '"fast"'),
        ("lr", "true"),
        ("batch_size", "256.0"),
        ("max_epochs", "[1]"),
        ("patience", "false"),
    ],
    ids=str,
)
def test_settings_of_the_wrong_type_are_named(name, value):
    with pytest.raises(InputTypeError, match=name):
        Plan.from_toml(training(f"{name} = {value}"))


BAD = [
    ("datasets", "[]"),
    ("variants", "[]"),
    ("seeds", "[]"),
    ("strengths", "[]"),
    ("datasets", '["ar1", "ar1"]'),
    ("variants", '["none", "hdr", "hdr"]'),
    ("seeds", "[0, 42, 0]"),
    ("protocol", '"exakt"'),
    ("protocol", '""'),
    ("budget", "-0.1"),
    ("budget", "nan"),
    ("strengths", "[0.0]"),
    ("strengths", "[10.0, -1.0]"),
    ("strengths", "[inf]"),
    ("strengths", "[nan]"),
    ("strengths", '"many"'),
    ("n_samples", "0"),
    ("n_samples", "1"),
    ("tau", "0.0"),
    ("tau", "-100.0"),
    ("tau", "nan"),
    ("tau", "inf"),
    ("hidden", "[0]"),
    ("hidden", "[100, -100]"),
    ("n_components", "0"),
    ("n_components", "-3"),
    ("n_null", "0"),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=str)
def test_values_that_cannot_be_used_are_named(name, value):
    with pytest.raises(InputError, match=name):
        Plan.from_toml(toml(**{name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("strengths", "[1.0, 3.0, 1.0]"),
        ("seeds", f"[{2**64}]"),
        ("seeds", f"[{-(2**64)}]"),
    ],
    ids=str,
)
def test_values_that_would_fail_in_the_middle_of_a_study_are_named(name, value):
    with pytest.raises(InputError, match=name.rstrip("s")):
        Plan.from_toml(toml(**{name: value}))


def test_the_published_protocol_selects_no_strength():
    with pytest.raises(InputError, match="strengths"):
        tiny(protocol="published", strengths=(1.0, 30.0))
    assert tiny(protocol="published", strengths=(3.0,)).strengths == (3.0,)


@pytest.mark.parametrize(
    "line",
    ["lr = 0.0", "lr = nan", "batch_size = 0", "max_epochs = 0", "patience = -1", "min_delta = -1"],
)
def test_settings_that_cannot_be_used_are_named(line):
    with pytest.raises(InputError, match=line.split(maxsplit=1)[0]):
        Plan.from_toml(training(line))


@pytest.mark.parametrize(
    "variant",
    ["hdrr", "none+hdr", "marginal+", "pca(2.0)", "pca(0)", "marginal(3)", "", "hdr(", "1"],
)
def test_variants_that_are_no_preranks_are_refused(variant):
    with pytest.raises(InputError):
        Plan.from_toml(toml(variants=f'["none", "{variant}"]'))


@pytest.mark.parametrize("variant", ["hdr+hdr", "marginal+hdr+marginal"])
def test_a_prerank_that_is_named_twice_in_a_variant_is_refused(variant):
    with pytest.raises(InputError, match="twice"):
        tiny(variants=("none", variant))


@pytest.mark.parametrize("other", ["Marginal+HDR", "marginal + hdr", " marginal+hdr"])
def test_two_spellings_of_one_variant_are_one_too_many(other):
    assert parse(other) == parse("marginal+hdr")
    with pytest.raises(InputError, match="variants"):
        tiny(variants=("none", "marginal+hdr", other))


@pytest.mark.parametrize(
    ("protocol", "variant"),
    [
        ("exact", "average_rank"),
        ("exact", "hdr+band_depth"),
        ("published", "average_rank"),
        ("published", "multivariate_rank"),
    ],
)
def test_preranks_that_cannot_be_trained_through_are_refused(protocol, variant):
    with pytest.raises(PrerankError, match=variant.split("+")[-1]):
        tiny(variants=("none", variant), protocol=protocol, strengths="auto")


@pytest.mark.parametrize("name", ["../air", "a/b", "/tmp/air", "", ".", ".."])
def test_datasets_whose_results_would_lie_elsewhere_are_refused(name):
    with pytest.raises(InputError, match="dataset"):
        tiny(datasets=("ar1", name))


@pytest.mark.parametrize("name", list(GOOD))
def test_what_is_missing_is_named(name):
    text = "".join(f"{key} = {value}\n" for key, value in GOOD.items() if key != name)
    with pytest.raises(InputError, match=f"no {name}"):
        Plan.from_toml(text)


VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="ascii", exclude_categories=["Cc"])),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
ENTRIES = [*GOOD, "protocol", "seeds", "strengths", "budget", "n_samples", "tau", "n_components"]


def as_toml(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


@given(st.sampled_from([*ENTRIES, "hidden", "n_null", "training"]), VALUES)
def test_any_value_is_either_usable_or_refused_by_an_error_of_ours(name, value):
    try:
        plan = Plan.from_toml(toml(**{name: as_toml(value)}))
    except PrerankError:
        return
    assert Plan.from_toml(plan.to_toml()) == plan


@given(st.text())
def test_any_text_is_a_plan_or_refused(text):
    with pytest.raises(PrerankError):
        Plan.from_toml(text)  # no text of chance has all three entries


# Changes


def test_entries_are_changed_by_toml():
    plan = tiny()
    found = plan.changed(
        {"tau": "50", "variants": '["none", "scale"]', "training.lr": "1e-4", "strengths": '"auto"'}
    )
    assert (found.tau, found.variants, found.strengths) == (50.0, ("none", "scale"), "auto")
    assert found.training == dataclasses.replace(plan.training, lr=1e-4)
    assert (found.seeds, found.hidden, found.name) == (plan.seeds, plan.hidden, plan.name)
    assert plan == tiny()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("colour", "3"),
        ("training.momentum", "0.9"),
        ("training.lr", "0.0"),
        ("other.lr", "1.0"),
        ("tau", "high"),
        ("tau", ""),
        ("name", "mine"),  # without quotes
        ("seeds", "[]"),
        ("budget", "-1.0"),
        ("n_samples", "20.0"),
        ("training", "3"),
    ],
    ids=str,
)
def test_changes_that_cannot_be_made_are_named(name, value):
    with pytest.raises((InputError, InputTypeError), match=name.rpartition(".")[2]):
        tiny().changed({name: value})


@pytest.mark.parametrize(
    "changes",
    [{"n_null": "5\nbudget = 3.0"}, {"training": "3", "training.lr": "1.0"}],
    ids=str,
)
def test_changes_of_more_than_one_value_are_refused(changes):
    with pytest.raises(PrerankError):
        tiny().changed(changes)


# Files


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "broken.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"broken\.toml"):
        Plan.read(path)


BROKEN = [b"name = ", b'name = "a"\nname = "b"', b"[training", b'name = "a']


@pytest.mark.parametrize("content", BROKEN, ids=str)
def test_broken_toml_is_refused(tmp_path, content):
    with pytest.raises(InputError, match="TOML"):
        Plan.from_toml(content.decode())


@pytest.mark.parametrize("content", [*BROKEN, b"budget = 0.1"], ids=str)
def test_a_broken_file_is_named(tmp_path, content):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"broken\.toml"):
        Plan.read(path)


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_a_file_that_cannot_be_read_is_named_and_presets_are_listed(tmp_path, kind):
    path = tmp_path / "absent.toml"
    if kind == "folder":
        path.mkdir()
    with pytest.raises(InputError, match=r"absent\.toml") as caught:
        Plan.read(path)
    assert all(name in str(caught.value) for name in PRESETS)


def test_unknown_presets_are_told_which_there_are():
    with pytest.raises(InputError, match="quik") as caught:
        Plan.preset("quik")
    assert all(name in str(caught.value) for name in PRESETS)


def test_a_budget_without_bound_is_a_budget():
    plan = tiny(budget=math.inf)
    assert Plan.from_toml(plan.to_toml()) == plan


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"tau": "1" * 400}, "tau"),
        ({"tau": "1" * 5000}, "tau"),
        ({"strengths": f"[{'1' * 400}]"}, "strengths"),
        ({"n_samples": "1" * 31}, "n_samples"),
        ({"n_null": "1" * 13}, "n_null"),
        ({"hidden": f"[{'1' * 31}]"}, "hidden"),
        ({"training.min_steps": "1" * 30}, "min_steps"),
        ({"training.max_epochs": "1" * 400}, "max_epochs"),
        ({"training.lr": "inf"}, "lr"),
        ({"variants": r'["none", "marginal\n"]'}, "variants"),
        ({"variants": f'["none", "pca({" " * 50_000}(2)"]'}, "50007 characters"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_no_machine_can_do_is_refused_at_once(changes, name):
    with pytest.raises(InputError, match=name):
        Plan.preset("quick").changed(changes)
