"""From what was sent or said to what may rest: reasoning marked, media marked, secrets removed.

One scan of the serialised text decides for all three; what has nothing to hide comes back as it
was. In this order: reasoning first (its text is gone before anything else looks at it), then media
(a picture is not searched for keys), then secrets. Fails closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from everyturn.audit import media, reasoning
from everyturn.audit.checks import name_level
from everyturn.audit.media import Take
from everyturn.audit.reasoning import REF_CHARS, Keep
from everyturn.audit.redact import NONE_FOUND, Counts, Redacted, Redactor
from everyturn.audit.rules import FAILED, KEY_RULE
from everyturn.audit.scan import Scanner, encode
from everyturn.wire import reader

_REASONING: Final = 0
_MEDIA: Final = 1
_FAILED_JSON: Final = f'"{FAILED}"'
_URLS_MAX: Final = 1024
_PARAMETERS_MAX: Final = 1024
_PARAMETERS_BYTES_MAX: Final = 2048
"""Parameters that are remembered to be clean: how many, and how long each may be."""
_SEPARATOR: Final = b"\n\n"
"""Between two texts that one scan looks at. A find that reaches over it costs a second look."""
_QUERY_SECRETS: Final = frozenset({"key", "sig", "signature", "code"})
"""Names of query parameters that are secrets beside those that any member's name can be."""


class Cleaner:
    """Makes text and JSON fit to be stored. Remembers addresses and clean parameters.

    key: secret of this installation that makes the hashes of media, up to 64 bytes.
    """

    def __init__(self, redactor: Redactor, key: bytes, scanner: Scanner | None = None) -> None:
        """scanner: of another cleaner with this redactor."""
        self._redactor = redactor
        self._key = key
        self._urls: dict[str, str] = {}
        self._clean_parameters: dict[bytes, str] = {}
        self._ready: Mapping[bytes | str, Redacted[str]] = {}
        self._take: Take | None = None
        self._scanner = scanner or Scanner(
            [reasoning.HINT, media.HINT, *redactor.hints], apart=redactor.hints_apart
        )

    @property
    def version(self) -> str:
        """The version of the rules."""
        return self._redactor.version

    def keeping(self, take: Take | None) -> Cleaner:
        """This cleaner, with its memory, for where media are kept; None: where they are not."""
        keeping = Cleaner(self._redactor, self._key, self._scanner)
        keeping._urls = self._urls
        keeping._clean_parameters = self._clean_parameters
        keeping._ready = self._ready
        keeping._take = take
        return keeping

    def media_hash(self, content: bytes, version: str | None = None) -> str:
        """What names a medium: a keyed hash of its bytes. version: of the rules that made them."""
        data = content if version is None else b"%b\0%b" % (version.encode(), content)
        return media.media_hash(data, self._key)

    def reasoning_ref(self, text: str) -> str:
        """What names a kept reasoning text: a keyed hash of its redacted form and the rules."""
        data = f"{self.version}\0{text}".encode("utf-8", "surrogatepass")
        digest = blake2b(data, key=self._key, digest_size=REF_CHARS // 2, person=b"reasoning")
        return digest.hexdigest()

    def is_clean(self, raw: bytes) -> bool:
        """Whether nothing in JSON text, nor in any string of it, can be there to hide."""
        try:
            return not self._scanner.scan(raw)
        except Exception:  # noqa: BLE001 - what cannot be scanned is not known to be clean
            return False

    @contextmanager
    def having(self, ready: Mapping[bytes | str, Redacted[str]]) -> Iterator[None]:
        """Within it, what `sent` (of bytes) and `text` give for these is not worked out again."""
        before, self._ready = self._ready, ready
        try:
            yield
        finally:
            self._ready = before

    def sent(self, raw: bytes, keep: Keep | None = None) -> Redacted[str]:
        """JSON text of something a client sent (a message, a tool), as it may rest.

        keep: takes the reasoning in it, where that is stored.
        """
        if self._ready and keep is None and (ready := self._ready.get(raw)) is not None:
            return ready
        return self._json(raw, is_answer=False, has_controls=False, keep=keep)

    def parameters(self, tree: dict[str, Any]) -> Redacted[str]:
        """A request's parameters, as JSON text that may rest.

        Clean ones are remembered: an application sends the same ones with every request.
        """
        try:
            raw = reader.write(tree)
        except Exception:  # noqa: BLE001 - what cannot be written cannot be scanned
            return Redacted(_FAILED_JSON, {"scan_failed": 1})
        known = self._clean_parameters.get(raw)
        if known is not None:
            return Redacted(known, NONE_FOUND)
        cleaned = self._json(raw, is_answer=False, has_controls=True)
        if (
            not cleaned.counts
            and len(raw) <= _PARAMETERS_BYTES_MAX
            # A medium is to be taken anew each time, and not everybody who asks keeps media.
            and media.MARK not in cleaned.value
        ):
            if len(self._clean_parameters) >= _PARAMETERS_MAX:
                self._clean_parameters.clear()
            self._clean_parameters[raw] = cleaned.value
        return cleaned

    def said(self, tree: Any, keep: Keep | None = None) -> Redacted[str]:
        """A tree that a provider said, as JSON text that may rest. keep: as in `sent`."""
        return self.said_beside(tree, None, keep)[0]

    def said_beside(
        self, tree: Any, text: str | None, keep: Keep | None = None
    ) -> tuple[Redacted[str], Redacted[str] | None]:
        """A tree that a provider said, and a text that came with it: mostly one scan for both."""
        try:
            raw = reader.write(tree)
            if text is not None and not self._scanner.scan(raw + _SEPARATOR + encode(text)):
                return Redacted(raw.decode(), NONE_FOUND), Redacted(text, NONE_FOUND)
        except Exception:  # noqa: BLE001 - what cannot be written or scanned must not rest
            failed = Redacted(_FAILED_JSON, {"scan_failed": 1})
            return failed, None if text is None else self.text(text)
        cleaned = self._json(raw, is_answer=True, has_controls=False, keep=keep)
        return cleaned, None if text is None else self.text(text)

    def url(self, url: str) -> str:
        """An address without userinfo, and without query values that are secrets.

        Kept: there are as many as models in the configuration.
        """
        known = self._urls.get(url)
        if known is None:
            if len(self._urls) >= _URLS_MAX:
                self._urls.clear()
            known = self._urls[url] = self._url(url)
        return known

    def _url(self, url: str) -> str:
        if not url.isprintable():
            # No address. Taking one apart drops line ends, and with them what tells a key.
            return self._redactor.redact_text(url).value
        try:
            parts = urlsplit(url)
            query = "&".join(self._pair(pair) for pair in parts.query.split("&") if pair)
            bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query, fragment="")
            return self._redactor.redact_text(urlunsplit(bare)).value
        except ValueError:
            return FAILED

    def _pair(self, pair: str) -> str:
        name, equals, value = pair.partition("=")
        if name.lower() in _QUERY_SECRETS or name_level(name) > 0:
            return f"{name}=[redacted:{KEY_RULE}:{self._redactor.tag(value)}]" if value else pair
        return name + equals + value

    def text(self, text: str) -> Redacted[str]:
        """Plain text, as it may rest."""
        if self._ready and (ready := self._ready.get(text)) is not None:
            return ready
        try:
            hits = self._scanner.scan(encode(text))
            if not hits:
                return Redacted(text, NONE_FOUND)
            if _MEDIA in hits:
                text = media.hash_media(text, self._key, self._take)
        except Exception:  # noqa: BLE001 - fails closed
            return Redacted(FAILED, {"scan_failed": 1})
        return self._redactor.redact_text(text)

    def _json(
        self, raw: bytes, *, is_answer: bool, has_controls: bool, keep: Keep | None = None
    ) -> Redacted[str]:
        try:
            hits = self._scanner.scan(raw)
            if not hits:
                return Redacted(raw.decode(), NONE_FOUND)
            if hits[0] <= _MEDIA:
                tree = reader.read_provider(raw).value
                if _REASONING in hits:
                    tree = reasoning.mark_tree(
                        tree, is_answer=is_answer, has_controls=has_controls, keep=keep
                    ).value
                if _MEDIA in hits:
                    tree = media.hash_media(tree, self._key, self._take)
                raw = reader.write(tree)
                if hits[-1] <= _MEDIA:
                    return Redacted(raw.decode(), NONE_FOUND)
            text = raw.decode()
        except Exception:  # noqa: BLE001 - fails closed: the value is lost, nothing is let through
            return Redacted(_FAILED_JSON, {"scan_failed": 1})
        return self._redactor.redact_json(text)


def merged(*counts: Counts) -> Counts:
    """Rule → count of several parts together."""
    total = NONE_FOUND
    for part in counts:
        if part is NONE_FOUND or not part:
            continue
        if total is NONE_FOUND:
            total = part
            continue
        together = dict(total)
        for rule, count in part.items():
            together[rule] = together.get(rule, 0) + count
        total = together
    return total
