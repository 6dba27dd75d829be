"""Makes docs/page-live.webp and docs/page-views.webp: the live view of a server that has too much to do, in dark colors.
usage: page_pictures.py NEREID    needs chromium, chromedriver and cwebp (package webp)"""
import os
import subprocess
import sys
import tempfile
import time

import own_server
import page
import page_live
import webdriver

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")
SECONDS = 45  # of load, so that charts and batch are filled


def main():
    with tempfile.TemporaryDirectory() as folder, webdriver.browser() as browser, own_server.serving(sys.argv[1], *page_live.PRESSURE) as server, \
            page.proxied(server) as proxy:
        shown = page.Page(browser, proxy, folder)
        browser.colors("dark")
        with page_live.pressure(shown, prompts=2):
            time.sleep(SECONDS)
            browser.size(1280, 1060)
            shown.screenshot("live")
            browser.click(".plan > summary")
            browser.wait("return document.querySelector('.plan img')?.naturalWidth > 500")
            browser.size(1280, 1500)
            browser.run("document.querySelector('.views').scrollIntoView()")
            shown.screenshot("views")
        for name in ("live", "views"):
            subprocess.run(["cwebp", "-quiet", "-q", "70", os.path.join(folder, f"page-{name}.png"), "-o", os.path.join(DOCS, f"page-{name}.webp")], check=True)


if __name__ == "__main__":
    main()
