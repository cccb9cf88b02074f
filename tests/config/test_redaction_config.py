"""The `[redaction]` table: operators' rules, known values and personal data, and their faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from everyturn.audit.redact import Redactor
from everyturn.cli.main import main
from everyturn.config import Config, read_config
from everyturn.errors import ConfigError

MODEL = '\n[[models]]\nname = "m"\npreset = "generic-strict"\nbase_url = "http://127.0.0.1:1/v1"\n'
TICKET = '[redaction]\nrules = [{name = "ticket", pattern = "TCK-[0-9]{6}"}]\n'


def config(text: str, environment: dict[str, str] | None = None) -> Config:
    """The configuration in a text."""
    return read_config(text + MODEL, "t.toml", environment or {})


def redactor(loaded: Config) -> Redactor:
    """What a gateway with this configuration would remove."""
    return Redactor(b"k" * 32, known=loaded.redaction.known, rules=loaded.redaction.rules)


def test_own_rules_find_beside_the_built_in_ones() -> None:
    """An operator's pattern removes what it finds under its own name, with a tag."""
    found = redactor(config(TICKET)).redact_json('{"a":"see TCK-123456, ghp_' + "FAKE" * 9 + '"}')

    assert found.counts == {"ticket": 1, "github_token": 1}
    assert "[redacted:ticket:" in found.value


@pytest.mark.parametrize(
    "pattern, text, secret",
    [
        (r'say "([^"]+)"', 'he did say "FAKE words"', "FAKE words"),
        (r"^FAKE.*$", "FAKE first words", "FAKE first words"),
        (r"Kunde\s+(\d+)", "Kunde\n\t4711", "4711"),
        ("файл-[0-9]+", "файл-17", "файл-17"),
        (r"a/b/(\w+)", "a/b/FAKE", "FAKE"),
        (r"(?i){B}cust-[a-z0-9]{4}", "x CUST-FAKE y", "CUST-FAKE"),
    ],
)
@pytest.mark.parametrize("keyword", [False, True])
def test_any_pattern_is_sought_where_json_would_escape_it(
    pattern: str, text: str, secret: str, keyword: bool
) -> None:
    """Patterns with quotes, spaces, anchors and slashes find in JSON in JSON as in plain text."""
    word = "".join(c for c in secret if c.isascii() and (c.isalnum() or c in "-_"))
    extra = f', keyword = "{word}"' if keyword and len(word) >= 3 and word in text else ""
    rules = redactor(
        config(f"[redaction]\nrules = [{{name='own', pattern='''{pattern}'''{extra}}}]")
    )
    for form in (text, json.dumps([text]), json.dumps({"x": json.dumps({"y": text})})):
        found = rules.redact_text(form)

        assert found.counts == {"own": 1}, form
        assert secret not in found.value
        assert rules.redact_text(found.value).value is found.value


def test_known_values_come_from_the_environment() -> None:
    """A variable's value goes wherever it stands; unset and short ones are warnings."""
    text = '[redaction]\nknown_env = ["OURS", "UNSET", "SHORT"]\n'
    loaded = config(text, {"OURS": "FAKE house value", "SHORT": "abc"})

    found = redactor(loaded).redact_text("x FAKE house value y")

    assert found.counts == {"known": 1}
    assert [warning.split(": ")[0] for warning in loaded.warnings] == ["t.toml:2", "t.toml:2"]
    assert "FAKE house" not in repr(loaded)


PERSONAL = [
    ("email", "ask anna.fake@example.com now"),
    ("email", "пишите на иван@почта.рф сегодня"),
    ("phone", "call +49 (30) 1234-5678 or wait"),
    ("phone", "тел. 8 (495) 123-45-67, доб. 2"),
    ("phone", "tel 415-555-0123"),
    ("card", "card 4111 1111 1111 1111 exp"),
    ("card", "card 378282246310005, amex"),
    ("iban", "IBAN DE89 3704 0044 0532 0130 00."),
]
CLEAN = [
    "card 4111 1111 1111 1112, order 1234567890123456",
    "IBAN DE88 3704 0044 0532 0130 00",
    "at 12:30 on 2026-11-30, id 20261130123456, v1.2.3-4, 10.0.0.1:8080, 1,234,567.89",
    "call f(x) @ 3 and me@home",
    "[redacted:email] and [redacted:card]",
]


@pytest.mark.parametrize("rule, text", PERSONAL)
def test_personal_data_goes_without_a_tag(rule: str, text: str) -> None:
    """Addresses, numbers and accounts become a mark from which nobody can tell equal ones."""
    loaded = config('[redaction]\npersonal_data = ["email", "phone", "card", "iban"]\n')

    found = redactor(loaded).redact_text(text)

    assert found.counts == {rule: 1}
    assert f"[redacted:{rule}]" in found.value
    assert redactor(loaded).redact_text(found.value).value is found.value
    assert redactor(config("")).redact_text(text).value is text


@pytest.mark.parametrize("text", CLEAN)
def test_what_fails_its_check_digits_stays(text: str) -> None:
    """Numbers that are no cards or accounts, dates, versions and marks are left alone."""
    loaded = config('[redaction]\npersonal_data = ["email", "phone", "card", "iban"]\n')

    assert redactor(loaded).redact_text(text).value is text


def test_a_number_in_json_is_seen() -> None:
    """A card's number that is no string of the JSON becomes one, with the mark in it."""
    loaded = config('[redaction]\npersonal_data = ["card"]\n')

    found = redactor(loaded).redact_json('{"card":4111111111111111,"n":4111111111111112}')

    assert found.value == '{"card":"[redacted:card]","n":4111111111111112}'


FAULTS = [
    ('rules = [{name = "x", pattern = "(?<=a)b"}]', "rules[0].pattern", "RE2 refuses it"),
    ('rules = [{name = "x", pattern = "(a"}]', "rules[0].pattern", "RE2 refuses it"),
    ('rules = [{name = "x", pattern = "a*"}]', "rules[0].pattern", "empty text"),
    (f'rules = [{{name = "x", pattern = "{"a" * 1001}"}}]', "rules[0].pattern", "too long"),
    ('rules = [{name = "x", pattern = "[^a]{1000}"}]', "rules[0].pattern", "too large"),
    ('rules = [{name = "X-1", pattern = "a"}]', "rules[0].name", "not a name"),
    ('rules = [{name = "jwt", pattern = "a"}]', "rules[0].name", "built-in"),
    ('rules = [{name = "known", pattern = "a"}]', "rules[0].name", "built-in"),
    ('rules = [{name = "x", pattern = "a", keyword = "a b"}]', "rules[0].keyword", "no"),
    ('rules = [{name = "x", pattern = "a", colour = 1}]', "rules[0].colour", "not a setting"),
    ('rules = [{name = "x", pattern = "a"}, {name = "x", pattern = "b"}]', "rules[1].name", "earl"),
    ("rules = 7", "rules", "list of tables"),
    ('personal_data = ["name"]', "personal_data", "knows only"),
    ('known_env = ["not a name"]', "known_env", "no name"),
]


@pytest.mark.parametrize("line, key, what", FAULTS)
def test_each_fault_has_its_line_and_a_hint(line: str, key: str, what: str) -> None:
    """What cannot be used is named with its line and with what to write instead."""
    with pytest.raises(ConfigError) as failure:
        config(f"[redaction]\n{line}\n")

    ((number, path, said, hint),) = failure.value.faults
    assert (number, path) == (2, f"redaction.{key}")
    assert what in said
    assert hint


def test_the_number_of_rules_is_bounded() -> None:
    """More than a hundred rules are a fault."""
    many = ", ".join(f'{{name = "r{n}", pattern = "x{n}"}}' for n in range(101))

    with pytest.raises(ConfigError, match="more than 100"):
        config(f"[redaction]\nrules = [{many}]\n")


def test_the_command_shows_a_fault_of_a_table(tmp_path: Path) -> None:
    """`everyturn check` names the line of a rule that stands in a table of its own."""
    path = tmp_path / "everyturn.toml"
    path.write_text('[[redaction.rules]]\nname = "x"\npattern = "(?=a)"\n' + MODEL)

    result = CliRunner().invoke(main, ["check", str(path)])

    assert result.exit_code == 1
    assert ":3:" in result.output
    assert "RE2" in result.output


def test_the_environment_gives_lists_with_commas() -> None:
    """`EVERYTURN_REDACTION_PERSONAL_DATA=email,card` wins over the file."""
    loaded = config("", {"EVERYTURN_REDACTION_PERSONAL_DATA": "email, card"})

    assert {"email", "card"} <= {rule.name for rule in loaded.redaction.rules}
