"""Headless Chromium, and a lake served for it. Needs Debian's packages chromium and chromium-driver."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.support.ui import WebDriverWait

from auditlake.lake.layout import Lake
from auditlake.serve.access import Access, hosts_of
from auditlake.serve.resources import Resources
from auditlake.serve.server import Listen, bind, create_app


@contextmanager
def serving(lake: Lake) -> Iterator[str]:
    """Serve a lake on a port of its own."""
    bound = bind(Listen(port=0))
    port = bound.getsockname()[1]
    app = create_app(Resources(lake, UTC), Access(hosts_of("127.0.0.1", port, ())))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=lambda: server.run(sockets=[bound]), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
        bound.close()


@contextmanager
def started(downloads: Path) -> Iterator[webdriver.Chrome]:
    """Start a browser that keeps its downloads in a folder, and end it."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--force-device-scale-factor=1"):
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield found
    finally:
        found.quit()


def resize(browser: webdriver.Chrome, width: int, height: int) -> None:
    """Give the window a size, below 500 pixels that of a telephone."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def wait(browser: webdriver.Chrome, condition: Callable[[webdriver.Chrome], Any]) -> Any:
    """Wait until a condition holds, and return its value; meanwhile a page may replace the elements that it reads."""
    return WebDriverWait(browser, 10, 0.05, [StaleElementReferenceException]).until(condition)
