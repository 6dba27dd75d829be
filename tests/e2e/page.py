"""The web page in a real Chromium, through a proxy that serves it under a prefix and looks at its requests.
usage: page.py NEREID [FOLDER]: screenshots go to FOLDER"""
import base64
import contextlib
import hashlib
import http.client
import http.server
import json
import os
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import own_server
import page_live
import pictures
import scripted_model
import skips
import webdriver

PREFIX = "/some/prefix"
HOSTILE = ("<img src=x onerror=\"document.title='owned'\"> **bold <script>document.title='owned'</script>** "
           "[link](javascript:document.title='owned')\n\n| a | <b>c</b> |\n|---|---|\n| `<i>` | d |\n\n"
           "```html\n<svg onload=\"document.title='owned'\">\n```\n- one\n  - two <iframe src=\"//evil\">\n")
TEXTS = {"hostile": HOSTILE, "reasoned": "<think>because of this</think>so that",
         "call": "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
         "long": " ".join(f"word{i}" for i in range(60))}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"],
          "additionalProperties": False}
IDLE = "return document.querySelector('#send').checkVisibility()"
LAST = "const all = document.querySelectorAll('.message.assistant'), last = all[all.length - 1]; "
# Elements with a text of their own whose contrast to what is behind them is below 4.5 (WCAG 2, section 1.4.3).
CONTRAST = """
const numbers = (color) => { const m = color.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const bad = [];
for (const node of document.querySelectorAll("body *")) {
  const isText = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  if (!isText || !node.checkVisibility() || node.disabled || ["OPTION", "SCRIPT", "STYLE"].includes(node.tagName)) continue;
  let behind = node, page;
  do page = numbers(getComputedStyle(behind).backgroundColor); while (page[3] === 0 && (behind = behind.parentElement));
  const [a, b] = [light(numbers(getComputedStyle(node).color)), light(page)].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) bad.push(node.outerHTML.slice(0, 120));
}
return bad;"""
# Controls without a name, and ids that stand twice.
NAMES = """
const bad = [];
for (const node of document.querySelectorAll("button, input, select, textarea")) {
  const name = node.getAttribute("aria-label") || node.labels?.[0]?.textContent || (node.tagName === "BUTTON" && node.textContent);
  if (!name?.trim()) bad.push(node.outerHTML);
}
const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
return [...bad, ...ids.filter((id, i) => ids.indexOf(id) !== i)];"""


class Proxy(http.server.ThreadingHTTPServer):
    """Serves `server` under PREFIX. A held stream stops after some bytes until `release` is set or its client leaves."""
    daemon_threads = True

    def __init__(self, server):
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream = server.removeprefix("http://")
        self.bodies, self.paths = [], []
        self.hold_after = None
        self.release = threading.Event()

    def url(self):
        return f"http://127.0.0.1:{self.server_port}{PREFIX}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.paths.append(self.path)
        if not self.path.startswith(PREFIX):
            self.send_error(404)
            return
        if body:
            self.server.bodies.append(json.loads(body))
        connection = http.client.HTTPConnection(self.server.upstream)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            connection.request(self.command, self.path[len(PREFIX):] or "/", body, headers)
            self.answer(connection.getresponse())
        except OSError:
            self.close_connection = True
        finally:
            connection.close()

    def answer(self, reply):
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        if reply.status == 304:
            self.end_headers()
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        sent, hold_after = 0, self.server.hold_after
        while part := reply.read1(512 if hold_after else 65536):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            sent += len(part)
            while hold_after and sent > hold_after and not self.server.release.wait(0.05):
                self.connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    if not self.connection.recv(1):
                        raise OSError("the client has left")
                self.connection.setblocking(True)
            self.connection.setblocking(True)
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_HEAD = pass_on


@contextlib.contextmanager
def proxied(server):
    proxy = Proxy(server)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.release.set()
        proxy.shutdown()
        proxy.server_close()


class Page:
    """What a person does with the page."""

    def __init__(self, browser, proxy, folder):
        self.browser, self.proxy, self.folder = browser, proxy, folder

    def open(self, path="/"):
        self.browser.open(self.proxy.url() + path)
        self.browser.wait("return document.querySelector('#model').options.length > 0")

    def send(self, text, waits=True):
        self.browser.fill("#prompt", text)
        self.browser.press("enter")
        if waits:
            self.wait_idle()

    def wait_idle(self):
        self.browser.wait(IDLE)

    def new_chat(self):
        self.browser.click("#new-chat")
        self.browser.wait("return document.querySelectorAll('.message').length === 0")

    def set(self, **fields):
        if not self.browser.run("return document.querySelector('#settings').checkVisibility()"):
            self.browser.click("#toggle-settings")
        for name, value in fields.items():
            self.browser.run("""const input = document.querySelector('#set-' + arguments[0]);
              if (input.type === 'checkbox') input.checked = arguments[1]; else input.value = arguments[1];
              input.dispatchEvent(new Event('input'));""", name, value)

    def choose(self, select, value):
        self.browser.run("""const node = document.querySelector(arguments[0]);
          node.value = arguments[1]; node.dispatchEvent(new Event('change')); return node.value""", select, value)

    def answers(self, what=".markdown"):
        return self.browser.run(LAST + "return [...last.querySelectorAll('.answer ' + arguments[0])].map((n) => n.textContent)", what)

    def texts(self):
        return self.browser.run("return [...document.querySelectorAll('.message')].map((n) => n.querySelector('.text, .markdown').textContent)")

    def screenshot(self, name):
        self.browser.screenshot(os.path.join(self.folder, f"page-{name}.png"))

    def check_looks(self, width):
        """No text that is hard to read, no nameless control, nothing wider than the window."""
        for scheme in ("light", "dark"):
            self.browser.colors(scheme)
            assert (bad := self.browser.run(CONTRAST)) == [], (scheme, bad)
        assert (bad := self.browser.run(NAMES)) == [], bad
        assert (got := self.browser.run("return document.documentElement.scrollWidth")) <= width, got
        self.browser.colors("light")

    def check_console(self, *expected):
        """Nothing but failed requests with these statuses."""
        for entry in self.browser.console():
            text = entry["message"]
            assert any(f"responded with a status of {status}" in text for status in expected), text


def check_headers(url):
    """The policy has the hashes of what is served, also behind a proxy; programs get something else."""
    def get(headers):
        return urllib.request.urlopen(urllib.request.Request(url + "/", headers=headers))

    with get({"Accept": "text/html"}) as reply:
        text, policy = reply.read(), reply.headers["Content-Security-Policy"]
        tag = reply.headers["ETag"]
    for begin, end, kind in ((b"<script type=\"module\">", b"</script>", "script"), (b"<style>", b"</style>", "style")):
        part = text.split(begin)[1].split(end)[0]
        assert f"{kind}-src 'sha256-{base64.b64encode(hashlib.sha256(part).digest()).decode()}'" in policy, policy
    try:
        get({"Accept": "text/html", "If-None-Match": tag})
        raise AssertionError("not 304")
    except urllib.error.HTTPError as error:
        assert error.code == 304
    try:
        get({"Accept": "*/*"})
        raise AssertionError("not 404")
    except urllib.error.HTTPError as error:
        assert error.code == 404 and "base URL" in error.read().decode()


def check_chat(page):
    browser, bodies = page.browser, page.proxy.bodies
    page.set(system="Be brief.", temperature="0", seed="7", max_tokens="40", stop="zzz\nyyy")
    page.send("What is machine learning?")
    assert (first := page.answers()[0]).startswith("Machine learning"), first
    sent = bodies[-1]
    assert [m["role"] for m in sent["messages"]] == ["system", "user"] and sent["stream"] is True, sent
    assert (sent["temperature"], sent["seed"], sent["max_tokens"], sent["stop"]) == (0, 7, 40, ["zzz", "yyy"]), sent
    assert "top_p" not in sent and "tools" not in sent, sent
    page.send("And the capital of France?")
    assert [m["role"] for m in bodies[-1]["messages"]] == ["system", "user", "assistant", "user"], bodies[-1]
    texts = page.texts()
    browser.click(".message:last-child button", "Regenerate")
    browser.wait("return document.querySelectorAll('.message').length === 4")
    page.wait_idle()
    assert page.texts() == texts and bodies[-1]["messages"] == bodies[-2]["messages"], page.texts()
    browser.click(".message.user button", "Edit")
    browser.fill("[aria-label='Message, edited']", "What is the capital of France?")
    browser.click("button", "Send again")
    browser.wait("return document.querySelectorAll('.message').length === 2")
    page.wait_idle()
    assert [m["content"] for m in bodies[-1]["messages"]] == ["Be brief.", "What is the capital of France?"], bodies[-1]
    page.set(top_p="7")
    page.send("Hello")
    assert "top_p" in page.answers(".error")[0], page.answers(".error")
    page.set(top_p="", system="", stop="")


def check_conversations(page):
    browser = page.browser
    before = page.texts()
    page.new_chat()
    page.send("Hello")
    assert len(page.texts()) == 2 and browser.run("return document.querySelectorAll('#chat-list li').length") == 2
    # A conversation of another tab is listed, and is not overwritten.
    first, second = browser.do("/window", method="GET"), browser.do("/window/new", {"type": "tab"})["handle"]
    browser.do("/window", {"handle": second})
    page.open()
    page.new_chat()
    page.send("What is machine learning?")
    browser.do("/window", method="DELETE")
    browser.do("/window", {"handle": first})
    browser.wait("return document.querySelectorAll('#chat-list li').length === 3")
    browser.click("#chat-list li:nth-child(1) [aria-label^=Delete]")
    browser.do("/alert/accept")
    browser.do("/refresh")
    browser.wait("return document.querySelectorAll('.message').length === 2")
    browser.click("#chat-list li:nth-child(2) .open")
    assert page.texts() == before, page.texts()
    browser.click("#chat-list li:nth-child(2) [aria-label^=Delete]")
    browser.do("/alert/accept")
    browser.wait("return document.querySelectorAll('#chat-list li').length === 1")
    browser.wait("return document.querySelector('#model').options.length > 0")


def check_probabilities(page):
    browser = page.browser
    page.new_chat()
    page.set(logprobs=True, temperature="1", max_tokens="60", n="1")
    page.send("Hello")
    tokens = browser.wait(LAST + "const t = [...last.querySelectorAll('.tokens span')].map((n) => n.textContent); return t.length && t")
    browser.run(LAST + "last.querySelector('.tokens span').focus()")
    rows = browser.wait(LAST + "return [...last.querySelectorAll('.alternatives tr')].map((n) => n.innerText)")
    assert len(rows) >= 5 and all("%" in row for row in rows), rows
    browser.press("right")
    browser.wait(LAST + "return document.activeElement === last.querySelectorAll('.tokens span')[1]")
    assert browser.run(LAST + "return last.querySelector('.alternatives').checkVisibility()")
    page.screenshot("probabilities")
    assert not browser.run(LAST + "return last.querySelector('.markdown').checkVisibility()")
    browser.click(".message:last-child button", "Probabilities")
    browser.wait(LAST + "return last.querySelector('.markdown').checkVisibility()")
    assert "".join(tokens).strip() == page.answers()[0].strip(), (tokens, page.answers())
    page.set(logprobs=False)


def check_several(page):
    page.new_chat()
    page.set(n="3", temperature="1.5", max_tokens="12")
    page.choose("#other-model", "upper")
    page.send("Hello")
    assert len(page.answers()) == 6 and page.answers("h3") == ["quickstart"] * 3 + ["upper"] * 3, page.answers("h3")
    chosen = page.answers()[4]
    page.browser.click(".message:last-child .answer:nth-child(5) button", "Go on with this")
    page.screenshot("side-by-side")
    page.choose("#other-model", "")
    page.set(beams=True, n="2")
    page.send("Hello again")
    assert len(page.answers()) == 2 and all(page.answers()), page.answers()
    sent = page.proxy.bodies[-1]
    assert sent["use_beam_search"] and sent["messages"][1]["content"].strip() == chosen.strip(), (sent, chosen)
    page.set(beams=False, n="", temperature="")


def check_forms(page):
    browser = page.browser
    page.new_chat()
    page.set(form="json_schema", schema="{\"type\": ", max_tokens="60")
    before = len(page.proxy.bodies)
    page.send("How many?", waits=False)
    browser.wait("return document.querySelector('#fault-schema').textContent.includes('JSON schema')")
    assert len(page.proxy.bodies) == before and browser.run("return document.querySelector('#prompt').value") == "How many?"
    page.set(schema=json.dumps(SCHEMA))
    page.send("How many?")
    assert set(json.loads(page.answers()[0])) == {"n"}, page.answers()
    page.set(form="", schema="")
    page.new_chat()
    page.set(tools=json.dumps([{"name": "count", "parameters": SCHEMA}]), tool_choice="required", temperature="0")
    page.send("How many?")
    browser.find(".call strong", "count")
    page.set(tool_choice="none")
    browser.fill(".call textarea", "{\"result\": 5}")
    browser.click("button", "Send results")
    browser.wait("return document.querySelectorAll('.message.assistant').length === 2")
    page.wait_idle()
    call, result = page.proxy.bodies[-1]["messages"][1:3]
    first = call["tool_calls"][0]
    assert first["function"]["name"] == "count" and set(json.loads(first["function"]["arguments"])) == {"n"}, call
    assert result == {"role": "tool", "tool_call_id": first["id"], "content": "{\"result\": 5}"}, result
    page.set(tools="", tool_choice="", temperature="", max_tokens="")


def check_pictures(page):
    """Pictures are chosen or dropped, shown, removed, sent in front of the text, and kept with the conversation."""
    browser = page.browser
    page.open()
    url = pictures.data_url("rgb_28x28.png")
    attach = """const bytes = Uint8Array.from(atob(arguments[0].split(',')[1]), (c) => c.charCodeAt(0)), data = new DataTransfer();
      data.items.add(new File([bytes], arguments[1], { type: arguments[2] }));
      const input = document.querySelector('#attach-files');
      if (arguments[3]) document.querySelector('#talk').dispatchEvent(new DragEvent('drop', { dataTransfer: data }));
      else { input.files = data.files; input.dispatchEvent(new Event('change')); }"""
    number = "return document.querySelectorAll('#attached img').length === arguments[0]"
    assert browser.run("return document.querySelector('#attach').checkVisibility()")
    browser.run(attach, url, "a.png", "image/png", False)
    browser.run(attach, pictures.data_url("rgb_27x29.png"), "b.png", "image/png", True)
    browser.wait(number.replace("arguments[0]", "2"))
    browser.click("#attached [aria-label='Remove picture 2']")
    browser.wait(number.replace("arguments[0]", "1"))
    browser.run(attach, url, "c.svg", "image/svg+xml", False)
    browser.wait("return document.querySelector('#notice').textContent.includes('c.svg is none of PNG')")
    page.check_looks(1280)
    page.set(max_tokens="8", temperature="0")
    page.send("What is it?")
    content = page.proxy.bodies[-1]["messages"][-1]["content"]
    assert content == [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is it?"}], content
    assert page.answers(".error") == [""] and browser.run(number, 0), page.answers(".error")
    page.screenshot("picture")
    browser.do("/refresh")
    browser.wait("return document.querySelectorAll('.message.user .pictures img').length === 1")
    browser.wait("return document.querySelector('#model').options.length > 0")
    browser.click(".message:last-child button", "Regenerate")
    page.wait_idle()
    assert page.proxy.bodies[-1]["messages"][-1]["content"] == content


def check_looks(page):
    """Narrow and dark windows, and the keyboard."""
    browser = page.browser
    page.check_looks(1280)
    page.screenshot("wide")
    browser.size(360, 740)
    browser.run("if (document.querySelector('#toggle-settings').ariaExpanded === 'true') document.querySelector('#toggle-settings').click()")
    page.check_looks(360)
    page.screenshot("narrow")
    for panel in ("settings", "chats"):
        browser.click(f"#toggle-{panel}")
        browser.find(f"#{panel}")
        page.check_looks(360)
        browser.click(f"#toggle-{panel}")
    browser.click("#tab-live")
    page.check_looks(360)
    browser.colors("dark")
    page.screenshot("narrow-dark-live")
    browser.click("#tab-chat")
    page.screenshot("narrow-dark")
    browser.colors("light")
    browser.devtools("Emulation.clearDeviceMetricsOverride")
    # Every control that is shown gets the focus by the tabulator, and shows it.
    browser.run("document.activeElement.blur(); window.reached = new Set()")
    number = browser.run("return [...document.querySelectorAll('button, input, select, textarea')].filter((n) => n.checkVisibility() && n.tabIndex >= 0 && !n.disabled).length")
    for _ in range(number + 10):
        browser.press("tab")
        assert browser.run("""const node = document.activeElement, style = getComputedStyle(node);
          if (node.matches('button, input, select, textarea')) reached.add(node);
          return node === document.body || style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2"""), "no outline"
    assert browser.run("return reached.size") == number, (number, browser.run("return [...reached].map((n) => n.id)"))


def check_policy(page):
    """What a text of a model could do if it became markup is refused, and this test would see it."""
    browser = page.browser
    browser.run("const node = document.createElement('img'); node.src = 'http://127.0.0.1:9/x'; document.body.append(node)")
    seen, end = [], time.monotonic() + 60
    while not any("Content Security Policy" in text for text in seen):
        assert time.monotonic() < end, seen
        seen += [entry["message"] for entry in browser.console()]
    try:
        browser.run("document.body.innerHTML = '<b>x</b>'")
        raise AssertionError("innerHTML was taken")
    except webdriver.WebDriverError as error:
        assert "TrustedHTML" in str(error), error
    browser.console()


def check_scripted(page, prompts):
    """Texts of a model that say what they like, answers that are stopped, reasoning, calls, behind a key."""
    browser, proxy = page.browser, page.proxy
    browser.open(proxy.url())
    browser.find("#key-field")
    browser.type("#key-field", "secret")
    browser.click("#key-use")
    browser.wait("return document.querySelector('#model').options.length > 0")
    stores = browser.run("return [location.href, JSON.stringify(localStorage), JSON.stringify(sessionStorage)]")
    assert ["secret" in store for store in stores] == [False, False, True], stores
    assert not any("secret" in path for path in proxy.paths)
    browser.do("/refresh")
    browser.wait("return document.querySelector('#model').options.length > 0")
    page.check_console(401)
    prompt = {name: "x" * len(ids) for name, ids in prompts.items()}
    page.set(temperature="0")
    browser.click("#tab-live")
    browser.wait("return [...document.querySelectorAll('figure')].some((n) => n.checkVisibility())")
    browser.click("#tab-chat")
    page.send(prompt["hostile"])
    check_views_with_key(page)
    text = page.answers()[0]
    for part in ("<img src=x onerror=", "<script>document.title", "[link](javascript:", "<b>c</b>", "<svg onload=", "<iframe src="):
        assert part in text, (part, text)
    assert browser.run("return document.querySelectorAll('#messages :is(img, script, iframe, a, b, i)').length") == 0
    assert browser.run("return document.title") == "nereid"
    for selector in ("strong", "table th", "pre code", "li li", "td code"):
        assert browser.run("return document.querySelector('#messages .markdown ' + arguments[0]) !== null", selector), selector
    page.send(prompt["reasoned"])
    assert page.answers() == ["so that"] and page.answers(".reasoning .text") == ["because of this"], page.answers()
    assert not browser.run(LAST + "return last.querySelector('.reasoning').open")
    page.set(tools='[{"name": "weather"}]')
    page.send(prompt["call"])
    browser.find(".message:last-child .call strong", "weather")
    assert "Oslo" in page.answers("pre")[0], page.answers("pre")
    page.set(tools="")
    page.new_chat()
    check_stream(page, prompt["long"])
    page.check_console()


def check_views_with_key(page):
    browser = page.browser
    browser.click("#tab-live")
    browser.wait("return document.querySelectorAll('.prefixes .bars rect').length > 0")
    browser.click("#tab-chat")
    url = page.proxy.url() + "/v2/models/tensorrt_llm/prefix_tree"
    try:
        urllib.request.urlopen(url)
        raise AssertionError("without a key")
    except urllib.error.HTTPError as error:
        assert error.code == 401, error.code
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": "Bearer secret"})) as answer:
        assert json.load(answer)["instances"][0]["blocks"] > 0


def check_stream(page, prompt):
    """A part of the answer is shown while the rest is still on its way; an answer that is stopped keeps its part."""
    browser, proxy = page.browser, page.proxy
    whole = TEXTS["long"]
    proxy.hold_after = 1500
    page.send(prompt, waits=False)
    browser.wait(LAST + "return last?.querySelector('.markdown').textContent.length > 0")
    part = page.answers()[0]
    assert whole.startswith(part) and part != whole and not browser.run(IDLE), part
    assert browser.run(LAST + "return last.querySelector('.answer').getAttribute('aria-busy')") == "true"
    browser.click("#stop")
    page.wait_idle()
    assert "stopped" in page.answers(".muted")[-1], page.answers(".muted")
    assert whole.startswith(page.answers()[0]) and page.answers()[0] != whole
    browser.click(".message:last-child button", "Regenerate")
    browser.wait(LAST + "return last.querySelector('.markdown').textContent.length > 0")
    proxy.release.set()
    page.wait_idle()
    assert page.answers() == [whole], page.answers()
    proxy.hold_after = None


def main():
    if not webdriver.is_there():
        skips.skip("page.py", "there is no chromium with chromedriver")
        return
    nereid = sys.argv[1]
    with tempfile.TemporaryDirectory() as scratch, webdriver.browser() as browser:
        folder = sys.argv[2] if len(sys.argv) > 2 else scratch
        arguments = ("--grpc-port", "-1", "--max-beam-width", "4", "--lora", "upper=tests/adapters/upper")
        with own_server.serving(nereid, *arguments) as server, proxied(server) as proxy:
            check_headers(proxy.url())
            page = Page(browser, proxy, folder)
            page.open()
            for check in (check_chat, check_conversations, check_probabilities, check_several, check_forms):
                check(page)
            page.check_console(400)
            page_live.check(page)
            check_looks(page)
            page.check_console()
            check_policy(page)
            assert all(path.startswith(PREFIX) for path in proxy.paths), proxy.paths
        with own_server.serving(nereid, *page_live.PRESSURE) as server, proxied(server) as proxy:
            page_live.check_pressure(Page(browser, proxy, folder))
        with pictures.served(nereid) as server, proxied(server) as proxy:
            check_pictures(Page(browser, proxy, folder))
        model = os.path.join(scratch, "model")
        prompts = scripted_model.write(model, TEXTS)
        arguments = ("--grpc-port", "-1", "--api-key", "secret", "--reasoning-parser", "qwen3", "--tool-call-parser", "hermes")
        with own_server.serving(nereid, *arguments, model=model) as server, proxied(server) as proxy:
            check_scripted(Page(browser, proxy, folder), prompts)
    print("page: chats, probabilities, forms, tools, stop, pictures, live figures, prefix tree, plan, pauses, drafts, looks and hostile texts in Chromium")


if __name__ == "__main__":
    main()
