"""A headless Chromium that a test drives over its DevTools protocol, by a pair of pipes; not a test itself."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """A browser with one page.

    Args:
        folder: For its profile.
        width: Of the window, in pixels.
        height: Of the window, in pixels.
        dark: Whether its user prefers dark colours.
    """

    def __init__(self, folder: Path, width: int = 800, height: int = 900, dark: bool = False) -> None:
        assert CHROMIUM is not None
        there_in, self._out = os.pipe()
        self._in, there_out = os.pipe()
        command = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={folder}",
            f"--window-size={width},{height}",
        ]  # fmt: skip
        # The browser reads commands from descriptor 3 and answers on 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{there_in} 4>&{there_out}', "bash", *command],
            pass_fds=[there_in, there_out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(there_in)
        os.close(there_out)
        self._buffer, self._number = b"", 0
        self.told: list[str] = []  # errors of the page, as its console shows them
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = None
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        if dark:
            self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    _session: str | None = None

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]
            self._note(found)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.told.append(event["params"]["entry"]["text"])
        if event.get("method") == "Runtime.exceptionThrown":
            self.told.append(json.dumps(event["params"]["exceptionDetails"]))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._in], [], [], 60)[0], "the browser does not answer"
            chunk = os.read(self._in, 2**20)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 30) -> None:
        """Waits until a JavaScript expression is true."""
        until = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < until, f"{condition}: {self.run('document.body.innerText')} {self.told}"
            time.sleep(0.05)

    def open(self, address: str) -> None:
        """Opens a page, and waits until it knows the model or asks for a token."""
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && !!document.querySelector('form.card:not([hidden])')")

    def choose(self, selector: str, file: Path) -> None:
        """Chooses a file as a person does."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])

    def type(self, selector: str, text: str) -> None:
        """Types into a field."""
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def press(self, selector: str) -> None:
        """Presses a button."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def answer(self) -> str:
        """Waits for an answer; its text."""
        self.wait("!document.querySelector('#answer').hidden")
        return self.run("document.querySelector('#answer').innerText")

    def error(self) -> str:
        """Waits for an error; its text."""
        self.wait("!document.querySelector('#error').hidden")
        return self.run("document.querySelector('#error').innerText")

    def photograph(self, file: Path) -> None:
        """Writes a picture of the whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
        file.write_bytes(base64.b64decode(data))
