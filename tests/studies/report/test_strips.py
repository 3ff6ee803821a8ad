"""Who is served, on the page: a table without a script, and strips with one."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from made_up import make_run, make_study, save
from selenium.webdriver.common.keys import Keys

from focusfl.studies.report.html import page
from focusfl.studies.report.html.per_client import MOST


def served(folder, clients=6, seeds=2):
    """Two algorithms; of what a client gets, the second makes less."""
    runs = []
    for name, share in (("focus", 1.0), ("fedavg", 0.5)):
        for seed in range(seeds):
            run = make_run("rare", name, seed, accuracy=True)
            own = share * np.linspace(0.4, 0.9, clients) + 0.01 * seed
            curves = {f"accuracy/{n}": 0 * run.curves["loss"] + v for n, v in
                      {"worst": own.min(), "worst_tenth": own.min(),
                       "spread": own.std()}.items()}  # fmt: skip
            whole = {**run.curves, **curves}
            runs.append(replace(run, curves=whole, clients={"accuracy": own[::-1]}))
    return save(folder, runs, num_clients=clients)


def contents(html):
    return json.loads(re.search(r'id="contents">(.*?)</script>', html, re.S)[1])


def test_a_table_names_the_worst_served_without_a_script(tmp_path):
    html = page([served(tmp_path)]).split('<script type="application/json"')[0]
    assert "Who is served" in html
    rows = re.findall("<tr><td.*?</tr>", html.split("Who is served")[1])
    focus, fedavg = (re.sub("<.*?>", "|", row) for row in rows)
    assert "client 5: 0.4050, client 4: 0.5050" in focus  # medians of two seeds
    assert "client 5: 0.2050" in fedavg and "0.0854" in fedavg


def test_who_does_not_ask_is_told_nothing(tmp_path):
    html = page([make_study(tmp_path)])
    assert "<h3>Who is served" not in html
    assert contents(html)["studies"][0]["scenarios"][0]["served"] is None


def test_of_many_clients_some_are_drawn_and_the_worst_among_them(tmp_path):
    (study,) = contents(page([served(tmp_path, clients=5000)]))["studies"]
    found = study["scenarios"][0]["served"]
    assert len(found["clients"]) <= MOST and 4999 in found["clients"]
    assert min(found["groups"][0]["values"]["accuracy"]) == pytest.approx(0.405)


@pytest.mark.parametrize("width", [390, 1200])
def test_strips_are_drawn_and_read_with_the_keyboard(browser, tmp_path, width):
    file = tmp_path / "report.html"
    file.write_text(page([served(tmp_path / "study")]), "utf-8")
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get_log("browser")
    browser.get(file.as_uri())
    names = browser.find_elements("css selector", ".strips .strip-name")
    assert [one.text for one in names] == [
        "FOCUS · worst: client 5, 0.405", "FedAvg · worst: client 5, 0.205",
    ]  # fmt: skip
    ticks = browser.find_element("css selector", ".strips .strip").get_attribute("d")
    assert ticks.count("M") == 6
    browser.find_element("css selector", ".strips svg").send_keys(Keys.ARROW_RIGHT)
    tip = browser.find_element("id", "tip").text.split()
    assert tip == ["client", "5,", "accuracy", "FOCUS", "0.405", "FedAvg", "0.205"]
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    logged = [line for line in browser.get_log("browser") if line["level"] != "DEBUG"]
    assert logged == []
