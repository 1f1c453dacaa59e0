"""No secret is written down, and nothing else is lost."""

import pytest

from litlab.runs.masking import mask, mask_command, mask_diff, mask_text

SECRETS = [
    "password: hunter2x",
    "db.password=hunter2x",
    "--data.auth_token=hunter2x",
    '{"api_key": "hunter2x", "n": 1}',
    "{api_key: hunter2x, n: 1}",
    "AWS_SECRET_ACCESS_KEY=hunter2x",
    "client_secret = 'hunter2x'",
    "https://me:hunter2x@host/x",
    "postgres://:hunter2x@host:5432/db",
    "Authorization: Bearer hunter2xhunter2x",
    "it said hf_hunter2xhunter2xhunter2x there",
    "-----BEGIN RSA PRIVATE KEY-----\nhunter2x\nhunter2x\n-----END RSA PRIVATE KEY-----",
]
HARMLESS = [
    "data.max_tokens: 256",
    "pad_token: 0",
    "hub_token: null",
    "tokenizer: bert",
    "secret_share: high",
    "https://host:8080/a@b",
    "http://host/x?max_tokens=3",
    "monitor: val/acc",
    "passwordless: yes",
]


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_masked(text):
    assert "hunter2x" not in mask_text(text)
    assert "***" in mask_text(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text):
    assert mask_text(text) == text


def test_twice_is_as_once():
    for text in SECRETS:
        assert mask_text(mask_text(text)) == mask_text(text)


def test_python_code_stays_code():
    code = 'token = next(tokens)\ndef f(token: str, password=None): ...\napi_key = os.environ["API_KEY"]\n'
    assert mask_text(code, python=True) == code
    assert mask_text('API_KEY = "hunter2x"', python=True) == 'API_KEY = "***"'
    assert mask_text("login(password='hunter2x', n=3)", python=True) == "login(password='***', n=3)"


def test_commands():
    command = ["python", "--hub.token", "hunter2x", "--data.max_tokens", "5", "--x.password=hunter2x", "--token", "--y"]
    masked = ["python", "--hub.token", "***", "--data.max_tokens", "5", "--x.password=***", "--token", "--y"]
    assert mask_command(command) == masked


def test_plain_data():
    data = {"hub": {"token": "hunter2x", "max_tokens": 5, "keys": ["a"]}, "secrets": ["hunter2x"], "password": None}
    assert mask(data) == {
        "hub": {"token": "***", "max_tokens": 5, "keys": ["a"]},
        "secrets": ["***"],
        "password": None,
    }


def test_a_diff_is_masked_by_the_kind_of_its_files():
    diff = (
        "diff --git a/a.py b/a.py\n+token = next(tokens)\n+password = 'hunter2x'\n"
        "diff --git a/b.yaml b/b.yaml\n+token: hunter2x\n"
    )
    assert mask_diff(diff) == (
        "diff --git a/a.py b/a.py\n+token = next(tokens)\n+password = '***'\n"
        "diff --git a/b.yaml b/b.yaml\n+token: ***\n"
    )
