"""The live view of the web page, as page.py looks at it: charts, the batch over time, the prefix tree, the plan."""
import contextlib
import json
import re
import threading
import urllib.error
import urllib.request

# A server whose KV cache holds a part of what its clients ask for: sequences are paused and swapped, prompts come in chunks.
PRESSURE = ("--grpc-port", "-1", "--speculation", "ngram", "--kv-cache-tokens", "1024", "--host-cache", "64M", "--pause-policy", "swap",
            "--max-num-tokens", "64", "--max-batch-size", "6")
CLIENTS = 6


def check_batch(page, body):
    """Bars of the batch: of a request that is watched, its prompt and its decoding, the same in the table and the route."""
    browser, base = page.browser, page.proxy.url()
    ask = urllib.request.Request(base + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    for _ in range(60):
        urllib.request.urlopen(ask).read()
        with contextlib.suppress(AssertionError):
            browser.wait("return document.querySelectorAll('.batch rect.prefill title').length > 0 && "
                         "document.querySelectorAll('.batch .bars rect.decode title').length > 0", seconds=3)
            break
    else:
        raise AssertionError(browser.run("return document.querySelector('.batch').outerHTML"))
    title = browser.run("return document.querySelector('.batch .bars rect.decode title').textContent")
    assert title.startswith("Sequence ") and " tokens in " in title, title
    label = browser.run("return document.querySelector('.batch .bars').getAttribute('aria-label')")
    assert label.startswith("Batch of tensorrt_llm: "), label
    browser.run("for (const node of document.querySelectorAll('.batch details')) node.open = true")
    row = browser.run("return [...document.querySelectorAll('.batch tbody tr:last-child > *')].map((n) => n.textContent)")
    assert len(row) == 4 and int(row[1]) > 0 and "prefill, " in row[3], row
    with urllib.request.urlopen(base + "/v2/models/tensorrt_llm/batch") as answer:
        timeline = json.load(answer)
    last = timeline["sequences"][-1]
    assert timeline["seconds"] == 60 and last["ended"] and last["generated_tokens"] > 0, timeline
    assert [span[0] for span in last["spans"] if span[0] != "queued"] == ["prefill", "decode"], last
    assert sum(tokens for kind, _, _, tokens in last["spans"] if kind == "prefill") <= last["prompt_tokens"], last


def check_prefixes(page):
    """Bars of the prefix tree: the prompt of the requests before, the same in the drawing, the table and the route."""
    browser, base = page.browser, page.proxy.url()
    browser.wait("return document.querySelectorAll('.prefixes .bars rect.kept title').length > 0")
    first = browser.run("return document.querySelector('.prefixes .bars rect title').textContent")
    assert re.fullmatch(r"Tokens 1 to [0-9]+: [0-9]+ blocks? on the device, kept for later", first), first
    label = browser.run("return document.querySelector('.prefixes .bars').getAttribute('aria-label')")
    assert re.match(r"Prefix tree of tensorrt_llm: [1-9][0-9]* blocks? of [0-9]+ tokens, 0 held", label), label
    browser.run("document.querySelector('.prefixes details').open = true")
    rows = browser.run("return [...document.querySelectorAll('.prefixes tbody tr')].map((row) => [...row.children].map((n) => n.textContent))")
    assert rows and all(len(row) == 5 for row in rows) and rows[0][0].startswith("1 to "), rows
    with urllib.request.urlopen(base + "/v2/models/tensorrt_llm/prefix_tree") as answer:
        [tree] = json.load(answer)["instances"]
    assert sum(run[2] for run in tree["runs"]) + tree["left_out"] == tree["blocks"] > 0, tree
    assert sum(int(row[1]) for row in rows) == tree["blocks"], (rows, tree)
    assert tree["age_ms"] >= 0 and all(parent < i for i, (parent, *_) in enumerate(tree["runs"])), tree


def check_plan(page):
    """The plan of the engine that runs, with its graph, when it is opened and not before."""
    browser, base = page.browser, page.proxy.url()
    assert not any(path.endswith("/plan") for path in page.proxy.paths)
    browser.click(".plan > summary")
    browser.wait("return document.querySelector('.plan img')?.naturalWidth > 500")
    text = browser.run("return document.querySelector('.plan pre').textContent")
    with urllib.request.urlopen(base + "/v2/models/tensorrt_llm/plan") as answer:
        plan = json.load(answer)
    assert text == plan["text"] and plan["graph"].startswith("<svg "), text
    for part in ("plan (value@arena offset per row)", "layers.0.attn.qkv", "\nkernels\n", "\nmemory\n"):
        assert part in text, (part, text)


def check_routes(page):
    """A model of another backend has no views."""
    for route in ("batch", "prefix_tree", "plan"):
        try:
            urllib.request.urlopen(f"{page.proxy.url()}/v2/models/preprocessing/{route}")
            raise AssertionError(route)
        except urllib.error.HTTPError as error:
            assert error.code == 501, error.code


def check(page):
    browser = page.browser
    browser.click("#tab-live")
    browser.wait("return document.querySelectorAll('figure').length >= 8")
    body = json.dumps({"model": "quickstart", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20}).encode()
    shown = "return [...document.querySelectorAll('figure')].filter((n) => n.checkVisibility()).map((n) => n.querySelector('figcaption').textContent)"
    for _ in range(60):
        urllib.request.urlopen(urllib.request.Request(page.proxy.url() + "/v1/chat/completions", body, {"Content-Type": "application/json"})).read()
        with contextlib.suppress(AssertionError):
            browser.wait("""return [...document.querySelectorAll('figure')].some((n) => n.checkVisibility() &&
              /^Tokens a second.*generated [1-9]/s.test(n.textContent))""", seconds=3)
            break
    else:
        raise AssertionError(browser.run("return document.querySelector('#charts').textContent"))
    names = browser.run(shown)
    for name in ("Tokens a second", "Sequences", "KV cache, blocks by tier", "Time of a request, last minute", "Memory"):
        assert name in names, names
    assert "free" in browser.run("return document.querySelectorAll('figure')[2].querySelector('svg').getAttribute('aria-label')")
    check_batch(page, body)
    check_prefixes(page)
    check_plan(page)
    check_routes(page)
    page.screenshot("live")
    page.check_looks(1280)
    browser.click("#tab-chat")


def asking(url, number, stop, short, prompts):
    """Asks one thing after the other, `prompts` different ones behind the same beginning, until `stop` is set; for short answers
    once `short` is."""
    count = 0
    while not stop.is_set():
        count += 1
        text = "one two three four five six seven eight nine ten " * 6 + f"and {number} and {count % prompts}: " + "one two three " * 20
        body = {"model": "quickstart", "messages": [{"role": "user", "content": text}], "max_tokens": 4 if short.is_set() else 300,
                "temperature": 0, "ignore_eos": True}
        urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})).read()


@contextlib.contextmanager
def pressure(page, prompts=1000000):
    """Clients at work while the live view is open; gives an event that makes them ask for short answers."""
    stop, short = threading.Event(), threading.Event()
    threads = [threading.Thread(target=asking, args=(page.proxy.url(), number, stop, short, prompts)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        page.open()
        page.browser.click("#tab-live")
        yield short
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def check_pressure(page):
    """What is seen of a server that has too much to do: paused sequences, prompts in chunks, the host tier, accepted draft tokens."""
    browser = page.browser
    legend = "return [...document.querySelectorAll('#charts figure')].some((n) => n.checkVisibility() && new RegExp(arguments[0], 's').test(n.textContent))"
    with pressure(page) as short:
        browser.wait(legend, "^Accepted draft tokens.*accepted [1-9]")
        browser.wait(legend, "^KV cache, blocks by tier.*host, used [1-9]")
        for kind in ("queued", "prefill", "decode", "paused"):
            browser.wait(f"return document.querySelector('.batch .bars rect.{kind} title') !== null")
        browser.wait("return [...document.querySelectorAll('.batch tbody td:last-child')].some((n) => n.textContent.match(/prefill, /g)?.length > 1)")
        for kind in ("held", "kept", "host"):
            browser.wait(f"return document.querySelector('.prefixes .bars rect.{kind} title') !== null")
        page.screenshot("pressure")
        short.set()
        # Batch chart: with more sequences than bars its time range begins with the oldest sequence drawn.
        browser.wait("return parseFloat(document.querySelector('.batch .scale span').textContent) < 30")
    browser.click("#tab-chat")
    page.check_console()
