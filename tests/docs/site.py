"""The site of `make docs` in a real Chromium, opened from its folder: nothing is loaded from another host, the search finds the page
of an error code and that of a flag, and the console has no errors.
usage: site.py SITE"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import webdriver

SEARCHES = {"duplicate_member": "duplicate_member", "max_batch_size": "Options"}  # words, and a heading that is found


def check_addresses(site):
    """Links may lead to other hosts."""
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        for tag, address in re.findall(r"<(script|img|source)\b[^>]*?\bsrc=\"?([^\"> ]+)", text) + re.findall(r"<(link rel=\"?(?:stylesheet|preload|icon)\b)[^>]*?href=\"?([^\"> ]+)", text):
            assert not re.match(r"(https?:)?//", address), f"{page}: {tag} {address}"


def check_search(browser, site):
    found = """return [...document.querySelectorAll('.md-search-result__item :is(h1, h2)')].some((node) => node.textContent.includes(arguments[0]))"""
    for words, heading in SEARCHES.items():
        browser.open((site / "index.html").as_uri())
        browser.fill("[data-md-component=search-query]", words)
        browser.wait(found, heading)


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    check_addresses(site)
    with webdriver.browser() as browser:
        check_search(browser, site)
        browser.open((site / "docs" / "errors" / "invalid_type.html").as_uri())
        assert browser.run("return document.querySelector('h1').textContent").startswith("invalid_type")
        assert not (seen := browser.console()), seen
    print(f"site: {sum(1 for _ in site.rglob('*.html'))} pages, the search finds {', '.join(SEARCHES)}")


if __name__ == "__main__":
    main()
