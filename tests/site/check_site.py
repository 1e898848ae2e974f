#!/usr/bin/python3
"""A site in headless Chromium, from the disk and from a server: check_site.py SITE.

Its navigation is that of README.md; a search finds a page and shows the word in it; a keyboard reaches all; no page is
wider than a phone; light and dark are readable; the playground runs, if it is there; nothing asks for anything else.
"""
import functools
import http.server
import json
import sys
import threading
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PATIENCE_S = 120
TOPICS = ["Start", "Choose", "Scale", "Understand", "Extend", "Manual", "More"]
PHONE = (360, 740)
READ = ["index.html", "docs/writing-a-schedule.html", "manual/starpipe-train.html", "src/policies/orders/helix.c.html"]
checks = []


def check(what, ok, told=""):
    checks.append(bool(ok))
    if not ok:
        print(f"FAIL: {what}: {str(told)[:600]}")


class Browser:
    def __init__(self, address):
        self.address = address
        options = webdriver.ChromeOptions()
        for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000",
                     "--force-device-scale-factor=1", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"):
            options.add_argument(word)
        options.binary_location = "/usr/bin/chromium"
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)

    def open(self, page):
        self.driver.get(self.address + page)

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, script):
        """Until the script returns something true, which is returned, or for long."""
        end = time.monotonic() + PATIENCE_S
        while not (found := self.js(script)) and time.monotonic() < end:
            time.sleep(0.05)
        return found

    def press(self, *keys):
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def screen(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})

    def colours(self, scheme):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def check_log(self, what):
        """No errors, and no request but to the site, since the last call."""
        log = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        check(f"{what}: the console has no errors", not log, log)
        asked = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [one["params"]["request"]["url"] for one in asked if one["method"] == "Network.requestWillBeSent"]
        allowed = (self.address, "data:", "blob:", "about:")
        outside = sorted({url for url in asked if not url.startswith(allowed)})
        check(f"{what}: no request leaves the site", not outside, outside)


def check_navigation(browser):
    browser.open("index.html")
    shown = browser.js("return [...document.querySelectorAll('.pages .caption')].map(p => p.innerText.trim())")
    check("the topics of README.md", shown == TOPICS, shown)
    check("a heading", browser.js("return document.querySelector('h1').innerText").startswith("starpipe"))
    pictures = browser.js("return [...document.images].map(i => [i.src, i.naturalWidth])")
    check("the pictures are there", pictures and all(width for _, width in pictures), pictures)


def check_search(browser, summaries):
    browser.open("index.html")
    browser.driver.find_element(By.CSS_SELECTOR, "header input").send_keys("interleaved", Keys.ENTER)
    found = browser.wait("""
        const links = [...document.querySelectorAll('#search-results li > a')].map(a => a.href);
        return /found/.test(document.querySelector('.search-summary')?.innerText) && links.length ? links : null;""") or []
    hits = [address for address in found if "/docs/schedules.html" in address]
    check("a search finds the page of schedules", hits, found)
    if summaries:
        check("a search shows lines of pages", browser.wait("return document.querySelector('#search-results .context')"))
    if hits:
        browser.driver.get(hits[0])
        shown = browser.wait("return document.querySelector('main .highlighted')?.innerText")
        check("the page shows the word that was searched", (shown or "").lower().startswith("interleav"), shown)
    browser.open("search.html?q=qwertzuiop")
    check("a search for nothing finds nothing", browser.wait(
        "return /did not match/.test(document.querySelector('#search-results')?.innerText)"))


FOCUS = "const a = document.activeElement; return [a.tagName, a.innerText.trim(), a.getBoundingClientRect().left >= 0]"


def check_keyboard(browser):
    browser.open("docs/schedules.html")
    browser.press(Keys.TAB)
    focus = browser.js(FOCUS)
    check("the first stop of a keyboard skips to the text, visibly", focus == ["A", "Skip to the text", True], focus)
    browser.press(Keys.ENTER)
    check("it skips to the text", browser.wait("return document.activeElement.id === 'text'"))
    browser.screen(*PHONE)
    browser.open("docs/schedules.html")
    opened = "return document.querySelector('.pages details').open"
    check("on a phone the pages are closed at first", not browser.js(opened))
    for _ in range(10):
        browser.press(Keys.TAB)
        if browser.js(FOCUS)[:2] == ["SUMMARY", "Pages"]:
            break
    browser.press(Keys.ENTER)
    check("a keyboard opens the pages", browser.wait(opened))
    browser.press(Keys.TAB)
    focus = browser.js(FOCUS)
    check("a keyboard reaches a page", focus == ["A", "Training", True], focus)
    browser.press(Keys.ENTER)
    check("a keyboard opens a page", browser.wait("return location.pathname.endsWith('/docs/training.html')"))
    browser.screen(1400, 1000)


def check_widths(browser, site):
    # the playground has a test of its own
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if path.name != "playground.html")
    for (width, height), some in ((PHONE, pages), ((820, 1100), READ), ((1400, 1000), READ)):
        browser.screen(width, height)
        for page in some:
            browser.open(page)
            wide = browser.js("return document.documentElement.scrollWidth")
            check(f"{page} is no wider than {width}", wide <= width, wide)


# The least contrast of text on what is behind it (WCAG), and that text.
CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
function channels(colour) {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
}
function light(colour) {
  const [r, g, b] = channels(colour).slice(0, 3).map(c => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
}
let least = [99, ''];
for (const e of document.querySelectorAll('body *:not(script):not(.skip):not(.headerlink)')) {
  if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length) continue;
  let behind = e;
  while (behind.parentElement && channels(getComputedStyle(behind).backgroundColor)[3] < 255) behind = behind.parentElement;
  const [a, b] = [light(getComputedStyle(e).color), light(getComputedStyle(behind).backgroundColor)];
  const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (contrast < least[0]) least = [contrast, e.innerText.slice(0, 60)];
}
return least;
"""


def check_colours(browser):
    papers = {}
    for scheme in ("light", "dark"):
        browser.colours(scheme)
        for page in READ:
            browser.open(page)
            least = browser.js(CONTRAST)
            check(f"{page}, {scheme}: text can be read", least[0] >= 4.5, least)
        papers[scheme] = browser.js("return getComputedStyle(document.body).backgroundColor")
    check("dark is another colour", papers["light"] != papers["dark"], papers)
    browser.colours("light")


def check_playground(browser):
    browser.open("index.html")
    browser.driver.find_element(By.CSS_SELECTOR, "header .playground").click()
    # it has a test of its own
    check("the playground opens", browser.wait(
        "return location.pathname.endsWith('/playground.html') && document.querySelectorAll('input, select').length > 5"))
    browser.open("docs/playground.html")
    check("its page links to it", browser.driver.find_elements(By.CSS_SELECTOR, "main a[href='../playground.html']"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/favicon.ico":  # a browser asks for it where a page, as the playground, names no icon
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


def main():
    site = Path(sys.argv[1]).resolve()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for what, address in (("from the disk", site.as_uri() + "/"), ("from a server", f"http://127.0.0.1:{server.server_port}/")):
        browser = Browser(address)
        try:
            check_navigation(browser)
            check_search(browser, summaries=what == "from a server")
            if (site / "playground.html").exists():
                check_playground(browser)
            if what == "from the disk":
                check_keyboard(browser)
                check_widths(browser, site)
                check_colours(browser)
            browser.check_log(what)
        finally:
            browser.driver.quit()
    server.shutdown()
    print(f"{sum(checks)} of {len(checks)} checks of the site" + ("" if (site / "playground.html").exists() else ", without the playground"))
    sys.exit(not all(checks))


main()
