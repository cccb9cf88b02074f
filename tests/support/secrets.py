"""Secrets to plant: one for each vendor rule, made from its pattern, and one for each structure.

All are fakes: their letters spell FAKE wherever the format leaves a choice, and a running number
makes each the only one of its kind, so that a byte search for it is sound.
"""

from __future__ import annotations

import base64
import random
import re
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple
from urllib.parse import quote

from everyturn.audit.checks import CHECKS
from everyturn.audit.rules import Rule
from everyturn.audit.vendors import VENDORS

_LONGEST_EXTRA = 4


class Planted(NamedTuple):
    """A secret, the text that it stands in, and what must be found nowhere."""

    kind: str
    text: str
    core: str
    """The secret itself."""


def vendor_secret(rule: Rule, number: int) -> Planted:
    """A secret of a vendor's format. number: makes it unlike any other."""
    pattern = rule.pattern.removeprefix("{B}").removesuffix(r"(?:[^A-Za-z0-9/+=]|\z)")
    for attempt in range(100):
        chance = random.Random(f"{rule.name} {number} {attempt}")
        text = _Sample(chance, number).of(_parser.parse(pattern))
        found = re.search(pattern, text)
        assert found is not None, rule.name
        core = found[found.lastindex or 0]
        if not rule.check or CHECKS[rule.check](core, found[0]):
            return Planted(rule.name, text, core)
    raise AssertionError(rule.name)


class _Sample:
    """Text that a pattern matches, of letters that say what it is."""

    def __init__(self, chance: random.Random, number: int) -> None:
        self._chance = chance
        self._wanted = f"FAKE{number:03d}fake"
        self._at = 0

    def of(self, tree: Any) -> str:
        return "".join(self._one(operation, value) for operation, value in tree)

    def _one(self, operation: Any, value: Any) -> str:
        match operation:
            case _constants.LITERAL:
                return chr(value)
            case _constants.IN:
                return self._sign(value)
            case _constants.SUBPATTERN:
                return self.of(value[3])
            case _constants.BRANCH:
                return self.of(self._chance.choice(value[1]))
            case _constants.MAX_REPEAT | _constants.MIN_REPEAT:
                least, most, inner = value
                count = min(max(least, min(most, least + _LONGEST_EXTRA)), 400)
                return "".join(self.of(inner) for _ in range(count))
            case _constants.AT:
                return ""
        raise AssertionError(operation)

    def _sign(self, items: Any) -> str:
        allowed: list[str] = []
        if items[0][0] is _constants.NEGATE:
            return ","
        for kind, value in items:
            if kind is _constants.LITERAL:
                allowed.append(chr(value))
            elif kind is _constants.RANGE:
                allowed += [chr(code) for code in range(value[0], value[1] + 1)]
            elif kind is _constants.CATEGORY:
                allowed += "abcdefghijkABCDEFGHIJK0123456789_"
        wanted = self._wanted[self._at % len(self._wanted)]
        self._at += 1
        plain = [sign for sign in allowed if sign.isalnum()]
        return wanted if wanted in allowed else self._chance.choice(plain or allowed)


STRUCTURES = (
    "Authorization: Bearer {}",
    "authorization: Token {}",
    "curl -H 'Authorization: ApiKey {}' https://h.example/",
    "curl -u user:{} https://h.example/",
    "Cookie: sid={}; theme=dark",
    "Set-Cookie: session={}; HttpOnly; Secure",
    "X-Api-Key: {}",
    "Proxy-Authorization: Basic {b64}",
    "[('x-api-key', '{}'), ('accept', '*/*')]",
    "postgres://app:{}@db.example:5432/shop",
    "redis://:{}@cache.example:6379/0",
    "mongodb+srv://app:{}@cluster.example/?w=majority",
    "https://{}@git.example.com/repo.git",
    "https://api.example/v1?key={}",
    "https://store.example/blob?se=1&sig={}&sp=r",
    "https://app.example/cb#access_token={}",
    "https://h.example/?next=1&X-Amz-Security-Token={}",
    "app:{}@tcp(10.0.0.5:3306)/db",
    "jdbc:oracle:thin:scott/{}@//db.example:1521/x",
    "jdbc:sqlserver://h;user=sa;password={};encrypt=true",
    "host=db.example user=app password={} dbname=shop",
    "machine h.example login me password {}",
    'Srvr="srv";Ref="base";Usr="u";Pwd="{}";',
    "AccountName=a;AccountKey={};EndpointSuffix=x",
    "Endpoint=sb://h/;SharedAccessKey={}",
    "DB_PASSWORD={}",
    "export OPENAI_API_KEY='{}'",
    "client_secret: {}",
    "api_key = '{}'",
    "secretAccessKey => '{}'",
    'refresh_token := "{}"',
    "Пароль: {}",
    "token={}",
    '$env:ACCESS_TOKEN = "{}"',
    "os.environ['API_SECRET'] = '{}'",
    '{{"password": "{}"}}',
    '{{"headers": {{"X-Api-Key": "{}"}}}}',
    '{{"env": [{{"name": "DB_PASSWORD", "value": "{}"}}]}}',
    "<dbPassword>{}</dbPassword>",
    "run --api-key {} now",
    "mysqldump -u app -p{} shop",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n{} cut here",
    "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n{}\n---- END SSH2 ENCRYPTED PRIVATE KEY ----",
    "PuTTY-User-Key-File-3: rsa\nPrivate-Lines: 1\n{}",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\n{}\n-----END PGP PRIVATE KEY BLOCK-----",
    "jwt eyJhbGciOiJIUzI1NiJ9.{}.FAKE-signature",
    "login:$6$FAKEsalt${}",
)
"""Where a secret is told by what stands around it; `{}` is the secret."""


FURTHER_STRUCTURES = (
    "client-key-data: {}",
    '<add key="ApiKey" value="{}"/>',
    '<property name="password" type="text" value="{}"/>',
    "deploy --token {} now",
    "ocp-apim-subscription-key: {}",
    "x-functions-key: {}",
    "SECRET_KEY_BASE={}",
    "requests.get(u, auth=('user', '{}'))",
    "docker login -u u -p {}",
    "aws configure set aws_secret_access_key {}",
    "$password = ConvertTo-SecureString '{}' -AsPlainText",
    "CREATE USER app IDENTIFIED BY '{}'",
    "ALTER USER app WITH PASSWORD '{}'",
    "requirepass {}",
    "db_pass: {}",
    "REDIS_PASS={}",
    "//registry.example/:_authToken={}",
    '{{"auths": {{"r.example": {{"auth": "{b64}"}}}}}}',
    "spring.datasource.password={}",
    "password: {}",
    'password = "{}"',
    "define('DB_PASSWORD', '{}');",
    "'password' => '{}',",
    "<password>{}</password>",
    "ENV API_TOKEN={}",
    "set PGPASSWORD={}",
    "PGPASSWORD={} psql -h db",
    "--password={}",
    "wget --password={} https://h.example/",
    'curl -H "Authorization: Bearer {}" https://h.example/',
    "-H 'X-Auth-Token: {}'",
    "X-Amz-Security-Token: {}",
    "Authorization: Negotiate {}",
    "Proxy-Authorization: Bearer {}",
    "Bearer {}",
    "bearer {}",
    "Private-Token: {}",
    "X-Vault-Token: {}",
    "Api-Key: {}",
    "x-goog-api-key: {}",
    "amqp://app:{}@mq.example/vhost",
    "mysql://app:{}@db.example/shop",
    "mssql+pyodbc://app:{}@db.example/shop?driver=x",
    "ftp://app:{}@files.example/a",
    "smtp://app:{}@mail.example:587",
    "ldap://cn=app:{}@ldap.example",
    "sftp://app:{}@files.example/a",
    "amqps://app:{}@mq.example/vhost",
    "clickhouse://app:{}@ch.example:9000/d",
    'kafka: sasl.jaas.config=org.x.PlainLoginModule required username="u" password="{}";',
    "rediss://:{}@cache.example:6380",
    "nats://{}@nats.example",
    "https://u:{}@proxy.example:3128",
    "https://h.example/?api_key={}",
    "https://h.example/?token={}&x=1",
    "https://h.example/?client_secret={}",
    "https://h.example/?code={}",
    "https://h.example/?X-Amz-Signature={}",
    "https://h.example/?password={}",
    "Server=h;Database=d;User Id=u;Password={};",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={}==;",
    "Driver={{x}};Server=h;Uid=u;Pwd={};",
    "Data Source=h;User ID=u;Password='{}';",
    "{{'Authorization': 'Bearer {}'}}",
    "{{'api_key': '{}', 'a': 1}}",
    "Config(api_key='{}', timeout=3)",
    'OpenAI(api_key="{}")',
    "apiKey: '{}',",
    "const accessToken = '{}';",
    'var clientSecret = "{}"',
    "let privateKey = `{}`",
    'my_secret_key: "{}"',
    "JWT_SECRET={}",
    "ENCRYPTION_KEY={}",
    "SIGNING_KEY='{}'",
    "WEBHOOK_SECRET={}",
    "SESSION_COOKIE={}",
    "csrf_token: {}",
    "xsrf-token={}",
    "id_token={}",
    "bot_token = {}",
    "auth_token: {}",
    "passphrase: {}",
    "passcode={}",
    "pwd={}",
    "credentials: {}",
    'connection_string = "{}"',
    "пароль = {}",
    '{{"name": "Authorization", "value": "{}"}}',
    '[["X-Api-Key", "{}"]]',
    '{{"Set-Cookie": "sid={}; Path=/"}}',
    '{{"private_key": "-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----\\n"}}',
    "-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----",
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\n{}\n-----END ENCRYPTED PRIVATE KEY-----",
    "-----BEGIN DSA PRIVATE KEY-----\n{}\n-----END DSA PRIVATE KEY-----",
    "login:$2b$12$FAKE0FAKEsaltFAKEsalt0{}",
    "login:$5$FAKEsalt${}",
    "$argon2id$v=19$m=65536,t=3,p=4$FAKEsaltFAKE${}",
    "login:$y$j9T$FAKEsaltFAKE${}",
    "mysql -u root -p{} shop",
    "sshpass -p {} ssh u@h",
    "mysql -u app -p'{}'",
    'psql "host=h dbname=d user=u password={}"',
    "git clone https://oauth2:{}@git.example/a.git",
    "az login --service-principal --password {}",
    "machine h.example\n  login me\n  password {}",
    '"accessKeySecret": "{}"',
    "export AWS_SECRET_ACCESS_KEY={}",
    "kubectl create secret generic x --from-literal=password={}",
    "Authorization=Bearer%20{}",
    "WEBHOOK=https://hooks.example/?secret={}",
    "sasl_password={}",
    "api-key={}",
    "X-API-KEY = {}",
    "access_key_id: x\nsecret_access_key: {}",
    "otpauth://totp/x?secret={}",
    "cookie: a={}",
    "Basic {b64}",
    "Authorization: Basic {b64}",
    "auth = {b64}",
)
"""More of them, in other notations."""


def structure_secret(form: str, number: int) -> Planted:
    """A secret inside a structure."""
    core = f"FAKE{number:03d}" + "fakeFAKE0123456789" * 2
    if "{b64}" in form:
        core = base64.b64encode(f"user:FAKE{number:03d}secret".encode()).decode()
    return Planted(form, form.replace("{b64}", "{}").format(core), core)


def percent(planted: Planted) -> Planted:
    """The same, percent-encoded once; every character, so that nothing is left of it."""
    return _encoded(planted, "".join(f"%{byte:02X}" for byte in planted.text.encode()), "percent")


def percent_light(planted: Planted) -> Planted:
    """The same, as a URL would hold it."""
    return _encoded(planted, quote(planted.text, safe=""), "quoted")


def in_base64(planted: Planted) -> Planted:
    """The same, in base64 once, with words around it."""
    text = base64.b64encode(f"note: {planted.text}\n".encode()).decode()
    return _encoded(planted, text, "base64")


def in_base64url(planted: Planted) -> Planted:
    """The same, in base64 for URLs, without padding."""
    text = base64.urlsafe_b64encode(f"# {planted.text}\n".encode()).decode().rstrip("=")
    return _encoded(planted, text, "base64url")


def _encoded(planted: Planted, text: str, how: str) -> Planted:
    return Planted(f"{planted.kind} ({how})", text, planted.core)


def traces(planted: Planted) -> list[bytes]:
    """Everything in which the secret could be read: as it is, and each way it is encoded once."""
    raw = planted.core.encode()
    found = [raw, quote(planted.core, safe="").encode()]
    found += ["".join(f"%{byte:02X}" for byte in raw).encode()]
    for before in range(3):
        first, last = -(-8 * before // 6), 8 * (before + len(raw)) // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.append(encode(bytes(before) + raw + bytes(2))[first:last])
    return list(dict.fromkeys(found))


def vendors() -> list[Planted]:
    """A secret for each vendor's format."""
    return [vendor_secret(rule, number) for number, rule in enumerate(VENDORS)]


def structures(first: int) -> list[Planted]:
    """A secret for each structure. first: the number of the first of them."""
    return [structure_secret(form, first + number) for number, form in enumerate(STRUCTURES)]


def canaries() -> list[Planted]:
    """One secret of every kind there is here."""
    known = vendors()
    forms = enumerate(STRUCTURES + FURTHER_STRUCTURES, start=len(known))
    return known + [structure_secret(form, number) for number, form in forms]
