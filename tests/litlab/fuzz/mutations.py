"""Odd command lines and configs, made from the parser's own keys and types."""

import random
import string
from pathlib import Path
from typing import Any

import yaml

from litlab.cli.class_paths import find_class
from litlab.cli.hints import kind, options, parameters, types_of

ODD = [
    "null", "~", "''", "true", "no", "on", "1", "0", "-1", "1.0", "1e-3", "1e400", "-1e400", ".nan", ".inf", "1,5",
    "1_0", "0x10", "10%", "1,234.00", "12 kW", "12:30", "2024-13-01", "x", "X.y", "os.system", "builtins.print", ".",
    "..", "a..b", "[]", "{}", "[1]", "[x]", "[null]", "[[1]]", "{a: 1}", "{class_path: X}", "{class_path: 5}",
    "{init_args: {a: 1}}", "{class_path: torch.optim.SGD}", "{class_path: EarlyStopping, init_args: {patience: x}}",
    "[{class_path: EMA}, 3]", "&a [*a]", "{a: 1, a: 2}", "{1: 2}", "{null: 1}", "!!python/object:os.system {}",
    "!!int x", "[", "{", "'", '"', "a: b: c", "*x", "@", "`", "%", "\t", "\xe9", "\u65e5\u672c", "\U0001f600",
    "\u202e", "\x07", "9" * 30, "x" * 5000, "/", "/tmp", "nope.yaml", "mine.yaml", "--x", "-", "99999999999999999999",
    "1e999", "-0.0", "1/2", "e", "=", "?", "[1, 2", "{a: }",
]  # fmt: skip
DAMAGE = ":,-#&*!|>%@`'\"{}[]?\t\n \0\x1b"
ENCODINGS = [*["utf-8"] * 6, "utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1", "utf-7"]
RARE = {  # keys that would start or wait for something; and what may use all memory or time, which is no mistake
    "trainer.num_nodes", "trainer.devices", "trainer.accelerator", "trainer.strategy", "config", "print_config",
}  # fmt: skip


def settings(parser: Any, config: dict[str, Any]) -> dict[str, Any]:
    """The keys of the command and of the classes in a config, with their types."""
    found = types_of(parser)
    for section in ("model", "data"):
        cls = find_class(config[section]["class_path"], options(found[section])[0])
        for name, hint in parameters(cls)[0].items():
            found[f"{section}.{name}"] = hint
    return {key: hint for key, hint in found.items() if key not in RARE}


class Mutator:
    """Makes odd inputs from a good config.

    Args:
        known: Keys with their types.
        config: A good config.
        seed: The same inputs come of the same seed.
    """

    def __init__(self, known: dict[str, Any], config: dict[str, Any], seed: int) -> None:
        self._known = known
        self._config = config
        self._random = random.Random(seed)

    def next(self, folder: Path) -> list[str]:
        """An odd command line; its config files are written into the folder."""
        make = self._random.choice([self._flag, self._flag, self._value, self._value, self._structure, self._text])
        return make(folder)

    def _key(self) -> str:
        """A key, right or nearly so."""
        key = self._random.choice(sorted(self._known))
        if self._random.random() < 0.75:
            return key
        place = self._random.randrange(len(key))
        letter = self._random.choice(string.ascii_lowercase + "._-+ é")
        return self._random.choice(
            [
                key[:place] + key[place + 1 :],
                key[:place] + letter + key[place:],
                key.rpartition(".")[2],
                f"{key}.{letter}",
                f"{self._random.choice(('model', 'data', 'trainer', 'fit'))}.{key}",
                key.upper(),
            ]
        )

    def _odd(self, key: str) -> str:
        """A value, most likely a wrong one, for a key."""
        if self._random.random() < 0.8 or key not in self._known:
            return self._random.choice(ODD)
        forms = [kind(option) for option in options(self._known[key]) if option is not type(None)]
        near = {"plain": ["-5", "0", "0.5", "100000", "txt"], "list": ["[a, 1]", "1"], "mapping": ["{a: {b: 1}}"]}
        return self._random.choice(near.get(self._random.choice(forms or ["plain"]), ["EMMA", "{lr: x}", "[EMA]"]))

    def _flag(self, folder: Path) -> list[str]:
        flags: list[str] = []
        for _ in range(self._random.choice((1, 1, 1, 2))):
            key = self._key()
            form = self._random.random()
            value = self._odd(key)
            plus = "+" if form < 0.05 else ""
            flags += [f"--{key}{plus}={value}"] if form < 0.6 else [f"--{key}", value] if form < 0.9 else [f"--{key}"]
            if form > 0.97:
                flags.insert(0, self._random.choice(("mine.yaml", f"-{key}", f"{key}={value}", "-c", "--", "é")))
        return ["fit", "--config", self._write(folder, "mine.yaml", yaml.safe_dump(self._config)), *flags]

    def _value(self, folder: Path) -> list[str]:
        """An odd value, or a misspelt key, in a second config."""
        key = self._key()
        text = self._odd(key)
        flow = self._random.random() < 0.5 and text.isprintable()
        for name in reversed(key.split(".")):
            text = f"{{{name}: {text}}}" if flow else f"{name}:\n" + "\n".join(f"  {line}" for line in text.split("\n"))
        return self._with_overlay(folder, text)

    def _structure(self, folder: Path) -> list[str]:
        """A part of the good config moved, doubled, replaced or taken out."""
        config = yaml.safe_load(yaml.safe_dump(self._config))
        blocks = list(_blocks(config))
        block, other = self._random.choice(blocks), self._random.choice(blocks)
        key = self._random.choice(sorted(block, key=str)) if block else "x"
        match self._random.randrange(6):
            case 0:
                block.pop(key, None)
            case 1:
                block[key] = yaml.safe_load(yaml.safe_dump(other))
            case 2:
                other[key] = block.pop(key, None)
            case 3:
                block[key] = self._random.choice(
                    [None, 5, "x", [], {}, [None], [[]], {"class_path": "EMA"}, -1.5, True]
                )
            case 4:
                block[self._random.choice([1, True, None, 2.5, "", "é", "a.b", "class_path", "init_args", "+"])] = 1
            case _:
                block[f"{key}x"] = block.pop(key, None)
        return ["fit", "--config", self._write(folder, "moved.yaml", yaml.safe_dump(config, sort_keys=False))]

    def _text(self, folder: Path) -> list[str]:
        """The text of the good config with damage, in any encoding."""
        text = yaml.safe_dump(self._config, sort_keys=False)
        for _ in range(self._random.randrange(1, 4)):
            place = self._random.randrange(len(text))
            cut = self._random.randrange(1, 12)
            insert = self._random.choice([*DAMAGE, "\n---\n", "\n...\n", "é", "&a ", "*a", "<<: "])
            text = text[:place] + insert + text[place + self._random.choice((0, 0, 1, cut)) :]
        if self._random.random() < 0.2:
            lines = text.splitlines()
            lines.insert(self._random.randrange(len(lines)), self._random.choice(lines))
            text = "\n".join(lines)
        encoding = self._random.choice(ENCODINGS)
        return ["fit", "--config", self._write(folder, "damaged.yaml", text, encoding)]

    def _with_overlay(self, folder: Path, text: str) -> list[str]:
        good = self._write(folder, "mine.yaml", yaml.safe_dump(self._config))
        return ["fit", "--config", good, "--config", self._write(folder, "over.yaml", text)]

    def _write(self, folder: Path, name: str, text: str, encoding: str = "utf-8") -> str:
        (folder / name).write_bytes(text.encode(encoding, errors="replace"))
        return name


def _blocks(content: Any) -> Any:
    if isinstance(content, dict):
        yield content
    for inner in content.values() if isinstance(content, dict) else content if isinstance(content, list) else []:
        yield from _blocks(inner)
