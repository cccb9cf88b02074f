"""Secrets are taken out of text and JSON, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everyturn.audit.redact import DEPTH_MAX, FINDS_MAX, Redactor, rules_version
from everyturn.audit.rules import FAILED
from everyturn.audit.ruleset import RULES

KEY = b"k" * 32
KNOWN = "known-FAKE-value/with+signs"


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    """The rules with one known value and one that is too short."""
    return Redactor(KEY, known=[KNOWN, "EMPTY"])


FORMATS = [
    ("anthropic_key", "sk-ant-api03-" + "FAKE" * 23),
    ("openrouter_key", "sk-or-v1-" + "fa4e" * 16),
    ("openai_key", "sk-proj-" + "FAKE_-12" * 8),
    ("sk_key", "sk-" + "FAKE1234" * 6),
    ("groq_key", "gsk_" + "FAKE" * 13),
    ("xai_key", "xai-" + "FAKE" * 20),
    ("cerebras_key", "csk-" + "fake" * 12),
    ("perplexity_key", "pplx-" + "FAKE" * 12),
    ("nvidia_key", "nvapi-" + "FAKE" * 16),
    ("fireworks_key", "fw_" + "FAKE12" * 4),
    ("replicate_token", "r8_" + "FAKE" * 9 + "1"),
    ("huggingface_token", "hf_" + "FAKE" * 8 + "xx"),
    ("aws_access_key", "AKIA" + "FAKE" * 4),
    ("google_api_key", "AIza" + "FAKE-" * 7),
    ("google_oauth_token", "ya29." + "FAKE" * 8),
    ("digitalocean_token", "dop_v1_" + "fa4e" * 16),
    ("vault_token", "hvs." + "FAKE" * 8),
    ("github_token", "ghp_" + "FAKE" * 9),
    ("github_token", "gho_" + "FAKE" * 9),
    ("github_token", "github_pat_" + "FAKE" * 20),
    ("gitlab_token", "glpat-" + "FAKE" * 5),
    ("npm_token", "npm_" + "FAKE" * 9),
    ("pypi_token", "pypi-" + "FAKE" * 20),
    ("slack_token", "xoxb-" + "123456789012-FAKE"),
    ("telegram_token", "123456789:AA" + "FAKE" * 8 + "x"),
    ("twilio_key", "SK" + "fa4e" * 8),
    ("sendgrid_key", "SG." + "FAKE" * 5 + "." + "FAKE" * 10),
    ("stripe_key", "sk_test_" + "FAKE" * 6),
    ("stripe_webhook_secret", "whsec_" + "FAKE" * 8),
    ("jwt", "eyJGQUtFRkFLRSI6MX0.eyJGQUtFRkFLRSI6Mn0.FAKE-signature"),
    ("everyturn_key", "et_shop-1_" + "FAKE-" * 8 + "key"),
    ("known", KNOWN),
]


@pytest.mark.parametrize("rule, secret", FORMATS)
def test_a_format_is_known_wherever_it_stands(redactor: Redactor, rule: str, secret: str) -> None:
    """A secret goes, by its own rule, from prose, from code and from JSON in JSON."""
    in_json = json.dumps({"arguments": json.dumps({"line\n": ["x", f"key={secret}\n"]})})
    for text in (f"use {secret} here", f'k("{secret}")', f"a\n{secret}\nb", in_json):
        found = redactor.redact_text(text)

        assert secret not in found.value
        assert found.counts == {rule: 1}
        assert f"[redacted:{rule}:{redactor.tag(secret)}]" in found.value


STRUCTURES = [
    ("Authorization: Bearer SECRET", "SECRET"),
    ("-H 'authorization: Basic RkFLRTpGQUtF'", "RkFLRTpGQUtF"),
    ("curl -u user:FAKEpass https://h/", "user:FAKEpass"),
    ("postgres://app:FAKEpass@db:5432/x", "FAKEpass"),
    ("https://FAKE0123456789abcdef@git.example.com/r.git", "FAKE0123456789abcdef"),
    ("GET https://h/v1beta/models/m:generateContent?key=FAKEKEY0123456789abc", "FAKEKEY0123"),
    ("https://s.example.com/b?se=1&sig=FAKE0123456789abcdef%3D&sp=r", "FAKE0123456789"),
    ("Cookie: sid=FAKE1234; theme=dark", "FAKE1234"),
    ("Set-Cookie: sid=FAKE1234; HttpOnly", "FAKE1234"),
    ('Srvr="s";Ref="b";Usr="u";Pwd="FAKEpwd";', "FAKEpwd"),
    ("AccountName=a;AccountKey=RkFLRQ==;EndpointSuffix=x", "RkFLRQ=="),
    ("DB_PASSWORD=FAKE1pass", "FAKE1pass"),
    ("export OPENAI_API_KEY='FAKE-key'", "FAKE-key"),
    ("password: FAKE1pass", "FAKE1pass"),
    ("Пароль: ФАЛЬШ123", "ФАЛЬШ123"),
    ("run --api-key FAKE1key now", "FAKE1key"),
    ("access_token => 'FAKE1token'", "FAKE1token"),
    ("token=FAKE0123456789abcdefgh", "FAKE0123456789abcdefgh"),
    ("AKIAFAKEFAKEFAKEFAKE," + "FAKE" * 10, "FAKE" * 10),
    ("-----BEGIN RSA PRIVATE KEY-----\nRkFLRQ==\n-----END RSA PRIVATE KEY-----", "RkFLRQ=="),
    ("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nRkFLRQ== cut", "RkFLRQ=="),
    ("PuTTY-User-Key-File-3: rsa\nPrivate-Lines: 1\nRkFLRUZBS0VG", "RkFLRUZBS0VG"),
    ("app:FAKEpass@tcp(10.0.0.5:3306)/db", "FAKEpass"),
    ("jdbc:oracle:thin:scott/FAKEtiger@//h:1521/x", "FAKEtiger"),
    ("host=db user=app password=fakeword dbname=x", "fakeword"),
    ("machine h login me password FAKE1word", "FAKE1word"),
    ("<dbPassword>fake word</dbPassword>", "fake word"),
    ("headers = [('x-api-key', 'FAKE1key8'), (b'cookie', b'a=FAKE2key8')]", "FAKE1key8"),
    ("mysqldump -u app -pFAKE1pass shop", "FAKE1pass"),
    ("app:$6$FAKEsalt$" + "FAKE" * 20, "FAKE" * 20),
    ("hash $2b$12$" + "FAKE." * 10 + "FAK", "FAKE." * 10),
    ("https://app.example/cb#access_token=FAKE0123456789abcdef", "FAKE0123456789"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nRkFLRQ== cut", "RkFLRQ=="),
    ("CREATE USER app IDENTIFIED WITH x_password BY 'FAKE pass'", "FAKE pass"),
    ("ALTER ROLE app WITH LOGIN PASSWORD 'FAKEpass'", "FAKEpass"),
    ('<add key="ApiKey"\n  value="FAKEkey8"/>', "FAKEkey8"),
    ("auth=('user', 'FAKEpass')", "FAKEpass"),
    ("run --token=FAKE0123456789abcdefgh", "FAKE0123456789"),
    ("ConvertTo-SecureString 'FAKEpass' -AsPlainText", "FAKEpass"),
    ("requirepass FAKE1pass", "FAKE1pass"),
    ("SMTP_PASS=FAKE1pass", "FAKE1pass"),
    ("docker login -u app -p FAKE1pass h.example", "FAKE1pass"),
    ("aws configure set aws_secret_access_key FAKE1pass", "FAKE1pass"),
]


@pytest.mark.parametrize("text, secret", STRUCTURES)
def test_a_secret_is_known_by_what_stands_around_it(
    redactor: Redactor, text: str, secret: str
) -> None:
    """Headers, URLs, cookies, connection strings, assignments and key blocks lose their secret."""
    for form in (text, json.dumps({"output": text}), json.dumps({"a": json.dumps([text])})):
        found = redactor.redact_text(form)

        assert secret not in found.value
        assert found.counts
        assert redactor.redact_text(found.value).value == found.value


CLEAN = [
    "The password: it is required, see the manual.",
    "max_tokens=4096, prompt_tokens: 123, total_tokens=4219",
    "risk-management-of-large-projects-2024-edition",
    "api_key = os.environ['OPENAI_API_KEY']",
    'password = "${DB_PASSWORD}"',
    "Authorization: Bearer <token>",
    "Authorization: Bearer $OPENAI_API_KEY",
    "token = tokens[0]",
    "next_page_token=CAUQAAFAKE0123456789",
    "basic understanding, bearer of good news",
    "data:image/png;base64,iVBORw0KGgo=",
    "http://127.0.0.1:8080/v1?user=me",
    "chatcmpl-BRmTHlrARTzAHK1na9s80xDlQGYPX call_4hrT4QP9jfojtK69vGiFCFjG",
    "the login page password resets, user name password rules",
    "user=bob password resets fail; mysql -p asks for it; sshpass is a tool",
    "<password></password> and <secret>  </secret>",
    '["password", "username"], ("api_key", "user")',
    "100%41 and %7E and %2F in a URL: https://h/a%2Fb%3Dc%40d",
    "the user said his password 'reset' failed; identified by name; compass=north12",
    "docker login asks for it; first_pass: 12ab34, bypass: 12ab34; auth = (user, group)",
    "configure set x 12345678",
    "--max-tokens 20000 --page-token CAUQAAFAKE0123456789ab",
    "[redacted:openai_key:0123abcd] and password=[redacted:assigned:0123abcd]",
]


@pytest.mark.parametrize("text", CLEAN)
def test_what_is_no_secret_stays(redactor: Redactor, text: str) -> None:
    """Words, limits, ids, placeholders and marks of earlier runs come back as the same object."""
    in_json = json.dumps({"content": text})

    assert redactor.redact_text(text).value is text
    assert redactor.redact_json(in_json).value is in_json


NAMED: list[tuple[Any, Any]] = [
    ({"password": "x"}, {"password": "[?]"}),
    ({"X-Api-Key": "abc"}, {"X-Api-Key": "[?]"}),
    ({"dbPassword": 123456}, {"dbPassword": "[?]"}),
    ({"password": None, "secret": "", "cookie": True}, None),
    ({"api_keys": ["a1", "b2"]}, {"api_keys": ["[?]", "[?]"]}),
    ({"password": {"value": "x", "hint": "pet"}}, {"password": {"value": "[?]", "hint": "pet"}}),
    ({"name": "DB_PASSWORD", "value": "x"}, {"name": "DB_PASSWORD", "value": "[?]"}),
    ({"value": "x", "name": "DB_PASSWORD"}, {"value": "[?]", "name": "DB_PASSWORD"}),
    ({"token": "Hello", "logprob": -0.1}, None),
    ({"token": "FAKE0123456789abcdef"}, {"token": "[?]"}),
    ({"max_tokens": 100000, "prompt_tokens": 12345, "prompt_cache_key": "user-1"}, None),
    ({"properties": {"password": {"type": "string"}}, "required": ["password"]}, None),
    ({"signature": "token=FAKE0123456789abcdefgh"}, None),
    ({"пароль": "x"}, {"пароль": "[?]"}),
    ([["X-Api-Key", "FAKE1"], ["Accept", "*/*"]], [["X-Api-Key", "[?]"], ["Accept", "*/*"]]),
    ({"required": ["password", "email"]}, None),
    ({"order": ["password", "sha256", "b1"], "x": [1, "cookie", "b1"]}, None),
    ({"x": ["cookie", "b1", 1], "y": ["cookie", "b1", ["z"]]}, None),
    ({"n": 12345678901234}, None),
]


@pytest.mark.parametrize("given, expected", NAMED)
def test_a_name_says_that_its_value_is_secret(
    redactor: Redactor, given: Any, expected: Any
) -> None:
    """Values under names of secrets go; counts, schemas, words and opaque fields stay."""
    for is_ascii in (True, False):
        text = json.dumps(given, ensure_ascii=is_ascii)
        inner = json.dumps({"arguments": text})

        assert _blank(redactor.redact_json(text).value) == (expected or given)
        nested = json.loads(redactor.redact_json(inner).value)["arguments"]
        assert _blank(nested) == (expected or given)


def _blank(text: str) -> Any:
    """The tree of a JSON text with every mark as `[?]`."""

    def blank(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: blank(item) for key, item in value.items()}
        if isinstance(value, list):
            return [blank(item) for item in value]
        is_mark = isinstance(value, str) and value.startswith("[redacted:")
        return "[?]" if is_mark else value

    return blank(json.loads(text))


def test_only_the_secret_changes(redactor: Redactor) -> None:
    """Spacing, escapes, number texts and key order of the rest stay byte for byte."""
    inner = '{ "id":2512292042121000001,"p":0.10, "e":"\\u00e9\\/",  "api_key" : "x" }'
    text = '{"n":1E5 ,"a":' + json.dumps(inner) + ',"b":"\\ud83c"}'

    found = redactor.redact_json(text)

    mark = f'"[redacted:key_name:{redactor.tag("x")}]"'
    assert json.loads(found.value)["a"] == inner.replace('"x"', mark)
    head, tail = text.split("api_key", 1)
    assert found.value.startswith(head)
    assert found.value.endswith(tail[-len(',"b":"\\ud83c"}') :])


def test_json_in_json_is_opened_to_a_bound(redactor: Redactor) -> None:
    """A secret deeper than the bound is removed with the whole string that hides it."""
    text = json.dumps({"password": "FAKE-deep"})
    for _ in range(DEPTH_MAX + 2):
        text = json.dumps({"x": text})

    found = redactor.redact_json(text)

    assert "FAKE-deep" not in found.value
    inner = found.value
    for _ in range(DEPTH_MAX + 1):
        inner = json.loads(inner)["x"]
    assert inner.startswith("[redacted:key_name:")
    assert redactor.redact_json(found.value).value == found.value


def test_letters_behind_escapes_are_seen(redactor: Redactor) -> None:
    """A key whose letters are written as escapes inside a string of JSON is found."""
    hidden = "".join(f"\\u{ord(sign):04x}" for sign in "ghp_" + "FAKE" * 9)
    text = json.dumps({"arguments": f'{{"x": "{hidden}"}}'})

    found = redactor.redact_json(text)

    assert found.counts == {"github_token": 1}


def test_broken_json_is_redacted_as_text(redactor: Redactor) -> None:
    """Arguments of a call that was cut lose their secrets too."""
    text = '{"password": "FAKE1pass", "query": "sk-' + "FAKE1234" * 4

    found = redactor.redact_text(text)

    assert found.counts == {"assigned": 1, "sk_key": 1}


def test_lone_surrogates_and_nul_do_no_harm(redactor: Redactor) -> None:
    """Characters that UTF-8 does not have stay, and the secret beside them goes."""
    text = "a\ud83c\0 password='FAKE\ud83cpass' ü"

    found = redactor.redact_text(text)

    assert found.value.startswith("a\ud83c\0 password='[redacted:assigned:")
    assert found.value.endswith("]' ü")


def test_bytes_come_back_as_bytes(redactor: Redactor) -> None:
    """JSON in UTF-8 bytes is taken and given as bytes."""
    clean = '{"a":"é"}'.encode()

    assert redactor.redact_json(clean).value is clean
    assert redactor.redact_json(b'{"secret":"x"}').value.startswith(b'{"secret":"[redacted:')


def test_trees_keep_numbers_and_identity(redactor: Redactor) -> None:
    """A clean tree is the same object; in another, only the secret is new."""
    clean = {"a": [1, 2.5, None, True]}

    assert redactor.redact_value(clean).value is clean
    found = redactor.redact_value({"password": "x", "n": 12345678901234567890})
    assert found.value["n"] == 12345678901234567890
    assert found.counts == {"key_name": 1}


def test_equal_secrets_have_equal_tags() -> None:
    """A tag tells equal secrets by, and depends on the installation's key."""
    one, other = Redactor(b"a" * 32), Redactor(b"b" * 32)
    text = "password='FAKE1' password='FAKE1' password='FAKE2'"

    first, second, third = one.redact_text(text).value.split(" ")

    assert first == second != third
    assert one.redact_text(text).value != other.redact_text(text).value


def test_short_known_values_are_left_alone(redactor: Redactor) -> None:
    """The key `EMPTY` of a local server is no secret and does not eat words."""
    assert redactor.known_ignored == 1
    assert redactor.redact_text("EMPTY").value == "EMPTY"


def test_what_cannot_be_scanned_becomes_a_stub(redactor: Redactor) -> None:
    """Bytes that are no text and trees that are no JSON are dropped and counted, never kept."""
    found = redactor.redact_json(b'{"password":"\xff"}')
    assert found.value == f'"{FAILED}"'.encode()
    assert found.counts == {"scan_failed": 1}

    tree = redactor.redact_value({"password": object()})
    assert tree.value == FAILED
    assert tree.counts == {"scan_failed": 1}


def test_a_string_full_of_secrets_is_removed_whole(redactor: Redactor) -> None:
    """More secrets than a text can hold make the string one mark, which is counted."""
    text = "password='FAKE1' " * (FINDS_MAX + 1)

    found = redactor.redact_json(json.dumps({"a": text, "b": "c"}))

    assert json.loads(found.value) == {"a": f"[redacted:too_many:{redactor.tag(text)}]", "b": "c"}
    assert found.counts == {"too_many": 1}
    assert redactor.redact_json(found.value).value is found.value


def test_the_version_follows_the_rules() -> None:
    """Another rule is another version; known values are not part of it."""
    assert rules_version(RULES) == rules_version(RULES)
    assert rules_version(RULES) != rules_version(RULES[1:])
    assert Redactor(KEY, known=["known-value-1"]).version == Redactor(b"x").version


def test_hostile_text_takes_linear_time(redactor: Redactor) -> None:
    """Texts made to exhaust a backtracking engine come back, whole or redacted."""
    for piece in ("a" * 50 + "!", "://a:", "password=", "-----BEGIN PRIVATE KEY-----", "eyJ" * 9):
        text = piece * 4000

        assert redactor.redact_text(redactor.redact_text(text).value).value


def test_a_name_behind_an_escape_is_seen(redactor: Redactor) -> None:
    """A line end that JSON writes as letters does not hide the name behind it."""
    for before in ("\n", "\t", "\x0f"):
        in_json = json.dumps({"a": json.dumps([f'{before}id_token: "FAKE-0000"'])})

        assert "FAKE-0000" not in redactor.redact_json(in_json).value
