"""No secret is written down, and nothing else is lost."""

import pytest

from litlab.runs.masking import mask, mask_command, mask_text
from litlab.runs.results import find_differences

SECRETS = [
    "password: hunter2x",
    "db.password=hunter2x",
    '{"api_key": "hunter2x", "n": 1}',
    "AWS_SECRET_ACCESS_KEY=hunter2x",
    "client_secret = 'hunter2x'",
    "https://me:hunter2x@host/x",
    "Authorization: Bearer hunter2xhunter2x",
    "it said hf_hunter2xhunter2xhunter2x there",
    "-----BEGIN RSA PRIVATE KEY-----\nhunter2x\nhunter2x\n-----END RSA PRIVATE KEY-----",
]
HARMLESS = [
    "pad_token: <pad>",
    "tokenizer.eos_token: '</s>'",
    "hub_token: null",
    "https://host:8080/a@b",
    "http://host/x?max_tokens=3",
    "passwordless: yes",
]


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_masked_once(text):
    masked = mask_text(text)
    assert ("hunter2x" in masked, "***" in masked) == (False, True)
    assert mask_text(masked) == masked


def test_what_a_variable_holds_is_masked_wherever_it_stands(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "hunter2xx")
    monkeypatch.setenv("MY_SERVER", "host.example")
    monkeypatch.setenv("SHORT_TOKEN", "a")
    settings = {"logger": {"name": "for hunter2xx at host.example", "bearer": "hunter2xx"}}
    assert mask(settings) == {"logger": {"name": "for *** at host.example", "bearer": "***"}}
    assert find_differences([{"db.password": "one"}, {"db.password": "two"}]) == {
        "db.password": ["***", "***"]
    }


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text):
    assert mask_text(text) == text


def test_commands():
    line = "python --hub.token {0} --data.max_tokens 5 --x.password={0} --token --pad_token <pad>"
    assert " ".join(mask_command(line.format("hunter2x").split())) == line.format("***")
