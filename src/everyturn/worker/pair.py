"""Pair this worker with a gateway: a code becomes a credential."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import msgspec

from everyturn.errors import NotPermitted, ProviderFault, TranslationError, UpstreamUnreachable
from everyturn.transport.base import Timeouts, UpstreamRequest
from everyturn.transport.direct import DirectTransport
from everyturn.worker.credential import Credential
from everyturn.worker.dial import PAIR_PATH, gateway_url

_ANSWER_BYTES_MAX = 64 * 1024
_TIMEOUTS = Timeouts(connect_ms=20_000, first_byte_ms=20_000, idle_ms=20_000, total_ms=40_000)


class _Paired(msgspec.Struct):
    name: str
    credential: str


async def pair(gateway: str, code: str, environment: Mapping[str, str]) -> Credential:
    """The credential that the gateway gives for a code.

    environment: for the variables that name proxies. Raises InvalidValue for an address that
    cannot be used, NotPermitted for a code that is not taken, and what transports raise.
    """
    parts = gateway_url(gateway)
    scheme = {"ws": "http", "wss": "https"}[parts.scheme]
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    transport = DirectTransport(proxy_env=environment, ssl_context=context)
    try:
        response = await transport.open(
            UpstreamRequest(
                url=f"{scheme}://{parts.netloc}{PAIR_PATH}",
                headers=(("content-type", "application/json"),),
                body=msgspec.json.encode({"code": code}),
            ),
            _TIMEOUTS,
        )
        body = b""
        while (chunk := await response.read()) and len(body) <= _ANSWER_BYTES_MAX:
            body += chunk
        response.close()
    except ProviderFault as failure:
        raise UpstreamUnreachable(
            failure.message.replace("provider", "gateway").rstrip("."),
            hint="Check the address, that the gateway is up, and its certificate.",
        ) from None
    finally:
        await transport.close()
    if response.status == 403:
        raise NotPermitted(
            "the gateway did not take the code: it is wrong, used or too old",
            hint="Run `everyturn worker invite NAME` on the gateway's machine for a new one.",
        )
    try:
        if response.status != 200:
            raise msgspec.DecodeError
        paired = msgspec.json.decode(body, type=_Paired)
    except msgspec.DecodeError:
        raise TranslationError(
            f"what answered is not a gateway with workers; its status is: {response.status}",
            hint='Check the address; at the gateway a model needs `transport = "worker"`.',
        ) from None
    return Credential(
        gateway=f"{parts.scheme}://{parts.netloc}", name=paired.name, secret=paired.credential
    )
