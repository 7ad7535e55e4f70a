"""Write the screenshots of docs/serve.md and README.md from a lake of the demo: docs/images/*.png.

    python scripts/screenshots.py LAKE [--folder docs/images]

LAKE is the lake that `make demo` leaves. Needs Debian's packages chromium and chromium-driver.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from selenium import webdriver
from selenium.webdriver.common.by import By

_ROOT = Path(__file__).parents[1]
_MOST_BYTES = 200_000
_PHONE = 390
_HEIGHTS = {1440: 900, _PHONE: 844}
_SQL = """select c.name, count(distinct o.order_id) as orders, sum(l.quantity * l.unit_price) as revenue
  from customers c join orders o using (customer_id) join order_lines l on l.order_id = o.order_id
 where o.status <> 'cancelled' group by c.name order by revenue desc limit 8"""


def main() -> None:
    """Start the page and a browser, and write each image."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("lake", type=Path)
    parser.add_argument("--folder", type=Path, default=_ROOT / "docs" / "images")
    asked = parser.parse_args()
    command = [sys.executable, "-m", "auditlake", "serve", "--lake", str(asked.lake), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            line = server.stderr.readline() if server.stderr else ""
            _write_all(re.findall(r"http://[^;]+(?=/)", line)[0], asked.folder)
        finally:
            server.terminate()


def _write_all(url: str, folder: Path) -> None:
    with urlopen(f"{url}/api/v1/log?{urlencode({'actor': 'back office', 'limit': 1})}") as response:  # noqa: S310
        lsn = json.load(response)["transactions"][0]["lsn"]
    high, low = lsn.split("/")
    before = f"lsn:{(int(high, 16) << 32) + int(low, 16) - 1}"
    pages = {
        "rows-1440-light": f"/rows?{urlencode({'table': 'public.orders', 'facet': 'status', 'at': lsn})}",
        "row-1440-dark": f"/row?{urlencode({'table': 'public.orders', 'key': 42})}",
        "compare-1440-light": f"/compare?{urlencode({'before': before, 'after': lsn})}",
        "transaction-390-light": f"/transaction?{urlencode({'transaction': lsn, 'at': lsn})}",
        "rows-390-dark": f"/rows?{urlencode({'table': 'public.orders', 'at': lsn})}",
        "sql-1440-dark": f"/sql?{urlencode({'sql': _SQL, 'at': lsn})}",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in pages.items():
        _, width, scheme = name.rsplit("-", 2)
        _write(f"{url}{path}", folder / f"{name}.png", int(width), scheme)


def _write(url: str, file: Path, width: int, scheme: str) -> None:
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    try:
        metrics = {
            "width": width,
            "height": _HEIGHTS[width],
            "deviceScaleFactor": 1,
            "mobile": width == _PHONE,
        }
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.get(url)
        deadline = time.monotonic() + 20
        while "running" in _state(browser) and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.3)
        browser.save_screenshot(str(file))
    finally:
        browser.quit()
    size = file.stat().st_size
    print(f"{file.name}: {size:,} bytes")  # noqa: T201
    if size > _MOST_BYTES:
        raise SystemExit(f"{file.name} has {size:,} bytes, need at most {_MOST_BYTES:,}")


def _state(browser: webdriver.Chrome) -> str:
    found = browser.find_elements(By.ID, "sql-state")
    return found[0].text if found else ""


if __name__ == "__main__":
    main()
