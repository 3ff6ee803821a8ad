"""One Chromium for all tests of pages, as conftest.py lends it."""

import shutil

import pytest

SHELL = shutil.which("chromium-headless-shell")  # the same without a window, sooner
CHROME = SHELL or shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROME
    if SHELL:
        options.set_capability("browserName", "chrome-headless-shell")
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chrome')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def browser(chromium):
    """It, with nothing of what another module made it pretend."""
    yield chromium
    for forget in ("clearDeviceMetricsOverride", "setEmulatedMedia"):
        chromium.execute_cdp_cmd(f"Emulation.{forget}", {})
    chromium.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": False})
