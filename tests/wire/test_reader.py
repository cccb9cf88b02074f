from __future__ import annotations

import pytest

from everyturn.wire.reader import (
    DEPTH_MAX,
    Malformed,
    NonFinite,
    Num,
    key_name,
    read_client,
    read_provider,
    surrogate_path,
    write,
    write_text,
)


def refusal(raw: bytes) -> Malformed:
    """What a client's text is refused with."""
    with pytest.raises(Malformed) as bad:
        read_client(raw)
    return bad.value


# ------------------------------------------------------------------ numbers keep their text


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-0",
        "12345678901234567890",
        "9" * 5000,
        "0.10",
        "-0.0",
        "1.0",
        "0.1000000000000000055",
        "0.00001",
        "1e400",
        "1E5",
        "1e-7",
        "123456789.123456789",
        "0." + "1" * 5000,
        "9" * 400 + ".5",
    ],
)
def test_a_number_is_written_as_it_was_read(text: str) -> None:
    """B43: a number keeps its digits, however many they are and however they are put."""
    raw = f'{{"n":{text}}}'.encode()

    assert write(read_client(raw)) == raw
    assert write(read_provider(raw).value) == raw


def test_plain_numbers_are_plain() -> None:
    """A number that Python would give back as it was is an int or a float."""
    value = read_client(b"[7,0.5,-3]")

    assert value == [7, 0.5, -3]
    assert [type(item) for item in value] == [int, float, int]


def test_a_kept_number_is_a_value() -> None:
    """A kept number compares by its text, and can be computed with."""
    number = read_client(b"0.10")

    assert number == Num("0.10")
    assert number != Num("0.1")
    assert number != 0.1
    assert {number: 1}[Num("0.10")] == 1
    assert float(number) == 0.1
    assert repr(number) == "Num(0.10)"


# ------------------------------------------------------------------ what JSON does not have


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_a_provider_may_say_a_number_that_is_none(text: str) -> None:
    """B41: a bare NaN or Infinity of a provider is told, and goes out as null."""
    document = read_provider(f'{{"a":[1,{{"b":{text}}}]}}'.encode())

    assert document.has_nonfinite
    assert document.value == {"a": [1, {"b": NonFinite(text)}]}
    assert write(document.value) == b'{"a":[1,{"b":null}]}'


def test_the_words_alone_are_not_such_a_number() -> None:
    """B41: a text that says NaN is a text."""
    document = read_provider(b'{"a":"NaN","b":["-Infinity"]}')

    assert not document.has_nonfinite


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_a_client_may_not(text: str) -> None:
    """B41: a bare NaN or Infinity of a client is refused."""
    assert refusal(f'{{"a":{text}}}'.encode()).reason == f"{text} is not JSON"


def test_a_number_that_is_none_is_a_value() -> None:
    """A non-finite number compares by its text."""
    assert NonFinite("NaN") == NonFinite("NaN")
    assert NonFinite("NaN") != NonFinite("Infinity")
    assert NonFinite("NaN") != "NaN"
    assert {NonFinite("NaN"): 1}[NonFinite("NaN")] == 1
    assert repr(NonFinite("NaN")) == "NonFinite(NaN)"


# ------------------------------------------------------------------ what is always refused


def test_a_key_twice_is_refused() -> None:
    """B42: an object with the same key twice is refused, at any depth, by client and provider."""
    raw = b'{"a":{"model":"cheap","b":1,"model":"expensive"}}'

    bad = refusal(raw)
    with pytest.raises(Malformed, match="the same key twice"):
        read_provider(raw)

    assert (bad.reason, bad.path) == ("an object has the same key twice", "model")
    assert str(bad) == "an object has the same key twice at `model`"


def test_bytes_that_are_no_utf8_are_refused() -> None:
    """B18: bytes that are not UTF-8 are refused with their place."""
    assert refusal(b'{"a":"\xe4\xbd"}').reason == "byte 6 is not UTF-8"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"a":1}x',
        b'{"a":1,}',
        b'"a\nb"',
        b'"\\x"',
        b'"\\u12"',
        b"'a'",
        b"{1:2}",
        b"01",
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    """Text that is not JSON is refused by client and provider."""
    with pytest.raises(Malformed):
        read_client(raw)
    with pytest.raises(Malformed):
        read_provider(raw)


def test_a_refusal_says_where_but_not_what() -> None:
    """A complaint about syntax has a position, and nothing of the text."""
    bad = refusal(b'{"secret": tru}')

    assert bad.reason == "expecting value (character 11)"
    assert bad.path is None


def test_depth_has_a_bound() -> None:
    """Nesting up to the bound is read; one level more is refused."""
    deep = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX

    assert write(read_client(deep)) == deep
    assert "nested deeper than 128" in refusal(b"[" + deep + b"]").reason
    assert "nested deeper than 128" in refusal(b'{"a":' * 10_000 + b"1" + b"}" * 10_000).reason


def test_brackets_in_texts_are_not_depth() -> None:
    """Brackets inside strings, and many brackets side by side, are not nesting."""
    raw = b'["' + b'[{\\"' * 500 + b'",' + b"[]," * 500 + b"{}]"

    assert write(read_client(raw)) == raw


def test_a_string_that_never_ends_costs_its_length() -> None:
    """A long unterminated string full of escapes is refused, and not looked at once an escape."""
    raw = b"[]," * 200 + b'"' + b'\\"' * 2_000_000

    with pytest.raises(Malformed):
        read_provider(raw)


# ------------------------------------------------------------------ surrogates, NUL


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b'"\\ud83c"', ""),
        (b'{"a":[0,"x\\udf55"]}', "a[1]"),
        (b'{"a":{"\\ud83c":1}}', "a.\\ud83c"),
        (b'{"a":{"b":"\\ud83c"}}', "a.b"),
    ],
)
def test_a_client_may_not_send_half_a_character(raw: bytes, path: str) -> None:
    """B44: a lone surrogate of a client is refused, with its path."""
    bad = refusal(raw)

    assert (bad.reason, bad.path) == ("a string has a lone surrogate", path)


def test_whole_characters_are_good() -> None:
    """B44: a pair of surrogate escapes is one character."""
    assert read_client(b'["\\ud83c\\udf55",{"a":1}]') == ["\N{SLICE OF PIZZA}", {"a": 1}]


@pytest.mark.parametrize("raw", [b'{"a":["x\\ud83c",1]}', b'{"\\udf55":null,"b":0.10}'])
def test_half_a_character_of_a_provider_is_carried(raw: bytes) -> None:
    """B44: a lone surrogate of a provider goes out as the escape it came as."""
    assert write(read_provider(raw).value) == raw
    assert write_text(read_provider(raw).value) == raw.decode()


def test_nothing_is_no_surrogate() -> None:
    """B44: a tree without surrogates has no path to one."""
    assert surrogate_path({"a": ["b", 1, None]}) is None


def test_a_nul_is_a_character() -> None:
    """B45: U+0000 is read and written, and is not the six characters of its escape."""
    value = read_client(b'["a\\u0000b","a\\\\u0000b"]')

    assert value == ["a\x00b", "a\\u0000b"]
    assert read_client(write(value)) == value


# ------------------------------------------------------------------ the rest


def test_a_view_of_bytes_is_read() -> None:
    """A provider's text may be a view into a larger buffer."""
    assert read_provider(memoryview(b'{"a":1}')).value == {"a": 1}


def test_a_key_in_a_message_is_short_and_plain() -> None:
    """A key stands in messages escaped where it is odd, and shortened where it is long."""
    assert key_name("a\nb") == "a\\nb"
    assert key_name("k" * 65) == "k" * 61 + "..."


def test_only_json_values_are_written() -> None:
    """What is no JSON value is a defect of the caller, and said so."""
    with pytest.raises(TypeError, match="not a JSON value: object"):
        write([object()])
