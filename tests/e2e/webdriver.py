"""A browser over the WebDriver protocol (W3C), with Debian's chromium and chromedriver."""
import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"enter": "\ue007", "escape": "\ue00c", "left": "\ue012", "right": "\ue014", "down": "\ue015", "tab": "\ue004"}


def is_there():
    return all(map(shutil.which, ("chromium", "chromedriver")))


class WebDriverError(Exception):
    pass


class Browser:
    def __init__(self, address):
        self.address = address
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900",
                     "--disable-background-networking", "--disable-component-update", "--no-first-run"]
        options = {"goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}
        self.session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": options}})["sessionId"]

    def call(self, method, path, body=None):
        request = urllib.request.Request(self.address + path, None if body is None else json.dumps(body).encode(),
                                         {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            raise WebDriverError(json.load(error)["value"]["message"]) from None

    def do(self, path, body=None, method="POST"):
        return self.call(method, f"/session/{self.session}{path}", ({} if body is None else body) if method == "POST" else None)

    def open(self, url):
        self.do("/url", {"url": url})

    def run(self, script, *arguments):
        """The value of a function's body; `arguments` are its arguments."""
        return self.do("/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script, *arguments, seconds=60):
        """Waits until the script's value is true, and returns it."""
        end = time.monotonic() + seconds
        while not (value := self.run(script, *arguments)):
            if time.monotonic() > end:
                raise AssertionError(f"after {seconds} s still not: {script} {arguments}\n" + self.run("return document.body.innerText"))
            time.sleep(0.05)
        return value

    def find(self, selector, text=None):
        """The visible element of that selector (and text), once there is one."""
        script = """for (const node of document.querySelectorAll(arguments[0]))
          if (node.checkVisibility() && (arguments[1] === null || node.textContent.trim() === arguments[1])) return node;
          return null;"""
        return self.wait(script, selector, text)[ELEMENT]

    def click(self, selector, text=None):
        self.do(f"/element/{self.find(selector, text)}/click")

    def type(self, selector, text):
        self.do(f"/element/{self.find(selector)}/value", {"text": text})

    def fill(self, selector, text):
        """Types into an empty field."""
        self.do(f"/element/{self.find(selector)}/clear")
        self.type(selector, text)

    def press(self, *keys):
        """Keys to what has the focus."""
        actions = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self.do("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def devtools(self, command, **parameters):
        return self.do("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def size(self, width, height):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def colors(self, scheme):
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.do("/screenshot", method="GET")))

    def console(self):
        """Messages of pages since the last call: errors, warnings, violations of policies."""
        return [entry for entry in self.do("/se/log", {"type": "browser"}) if entry["level"] in ("SEVERE", "WARNING")]


@contextlib.contextmanager
def browser():
    with tempfile.TemporaryFile("w+") as log:
        driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            for line in driver.stdout:
                if "started successfully on port" in line:
                    address = "http://127.0.0.1:" + line.rsplit(" ", 1)[1].strip().rstrip(".")
                    break
            else:
                log.seek(0)
                raise AssertionError("chromedriver ended: " + log.read())
            opened = Browser(address)
            try:
                yield opened
            finally:
                opened.do("", method="DELETE")
        finally:
            driver.terminate()
            driver.wait(60)
