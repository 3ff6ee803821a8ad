"""The page, opened in a real browser as a reader would."""

import json
import re
import time

import pytest
from made_up import make_run, make_study, save

from focusfl.studies.report.html import page
from focusfl.studies.report.names import COLOURS

NASTY = "a </script><b>&\"' _study"


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies")
    grid = [
        make_run("only", "focus", seed, lr=lr, accuracy=True, distance=False)
        for lr in (0.1, 0.2)
        for seed in range(2)
    ]
    return [make_study(folder / "a", name=NASTY), save(folder / "b", grid, name="grid")]


@pytest.fixture
def opened(browser, studies, tmp_path):
    """The page of two studies, in a window of 1400 pixels, in light colours."""
    file = tmp_path / "report.html"
    file.write_text(page(studies), "utf-8")
    look(browser, 1400)
    for log in ("browser", "performance"):
        browser.get_log(log)  # what went before
    browser.get(file.as_uri())
    yield browser
    logged = [line for line in browser.get_log("browser") if line["level"] != "DEBUG"]
    assert logged == []


def look(browser, width, scheme="light"):
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )


def drawn(browser):
    """Wait until the page has been drawn as it is now."""
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def find(browser, selector):
    return browser.find_elements("css selector", selector)


def click(browser, selector):
    (element,) = find(browser, selector)
    browser.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element
    )
    element.click()


def paths(browser, study=0):
    return [curve.get_attribute("d") for curve in find(browser, f"#study-{study} .curve")]


def names(browser, axis, study=0):
    found = find(browser, f"#study-{study} .curves .{axis}-name")
    return {name.get_attribute("textContent") for name in found}


def test_the_page_asks_the_network_for_nothing(opened):
    asked = [json.loads(line["message"])["message"] for line in opened.get_log("performance")]
    urls = [
        event["params"]["request"]["url"]
        for event in asked
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert any(url.endswith("report.html") for url in urls)  # the log is on
    assert [u for u in urls if not u.startswith(("file:", "data:", "blob:"))] == []


def test_every_group_of_runs_has_a_curve_and_every_scene_a_panel(opened):
    assert len(paths(opened)) == 6 and len(paths(opened, 1)) == 1  # the best of two
    assert all(len(path) > 10 for path in paths(opened))
    assert len(find(opened, "#study-0 .curves .panel")) == 2
    assert len(find(opened, "#study-0 .curves .band")) == 5  # where seeds differ


def test_the_x_axis_changes_by_a_click_and_so_do_the_curves(opened):
    assert names(opened, "x") == {"rounds"}
    seen = [paths(opened)]
    for value, label in [
        ("vectors_sent", "vectors sent"),
        ("seconds", "seconds"),
        ("gradients", "gradient evaluations"),
        ("bytes_up", "bytes up"),
    ]:
        click(opened, f"#study-0 input[name=x-0][value={value}]")
        assert names(opened, "x") == {label}
        assert len(paths(opened)) == 6 and paths(opened) != seen[-1]
        seen.append(paths(opened))
    assert names(opened, "x", 1) == {"rounds"}  # the other study is left alone


def test_the_y_axis_changes_by_a_click_and_so_do_the_curves(opened):
    before = paths(opened)
    click(opened, "#study-0 input[name=y-0][value=loss]")
    assert names(opened, "y") == {"loss"}
    assert paths(opened) != before and len(paths(opened)) == 6
    click(opened, "#study-0 input[name=relative]")
    assert names(opened, "y") == {"loss above the lowest reached"}
    offered = find(opened, "#study-1 input[name=y-1]")
    assert [one.get_attribute("value") for one in offered] == [
        "loss", "grad_norm", "accuracy",
    ]  # fmt: skip


def test_relative_to_the_best_puts_the_best_at_one(opened):
    click(opened, "#study-0 input[name=relative]")
    assert names(opened, "y") == {"distance ÷ the best there"}
    heights = re.findall(r"[ML][\d.]+ ([\d.]+)", paths(opened)[2])  # focus, on top
    assert len(set(heights)) == 1


@pytest.mark.parametrize("name", ["logY", "logX", "bands", "theory"])
def test_every_switch_changes_the_drawing_and_back(opened, name):
    def drawing():
        return find(opened, "#study-0 .curves")[0].get_attribute("innerHTML")

    before = drawing()
    click(opened, f"#study-0 input[name={name}]")
    assert drawing() != before
    click(opened, f"#study-0 input[name={name}]")
    assert drawing() == before


def test_theory_is_drawn_where_there_is_some(opened):
    # Two rates in full, one in rare beside what diverged, a bias in each.
    assert len(find(opened, "#study-0 .theory")) == 6
    assert find(opened, "#study-1 .theory") == []


def test_a_reference_line_goes_where_it_is_told(opened):
    (field,) = find(opened, "#study-0 input[name=reference]")
    assert len(find(opened, "#study-0 .reference")) == 2
    before = find(opened, "#study-0 .reference")[0].get_attribute("d")
    field.clear()
    field.send_keys("1e-3\n")
    assert find(opened, "#study-0 .reference")[0].get_attribute("d") != before
    field.clear()
    field.send_keys("much\n")
    assert field.get_attribute("aria-invalid") == "true"
    assert find(opened, "#study-0 .reference") == []


def test_the_legend_hides_a_curve_and_shows_it_again(opened):
    click(opened, "#study-0 .legend button:nth-child(2)")
    assert len(paths(opened)) == 4
    (button,) = find(opened, "#study-0 .legend button:nth-child(2)")
    assert button.get_attribute("aria-pressed") == "false"
    click(opened, "#study-0 .legend button:nth-child(2)")
    assert len(paths(opened)) == 6


def test_the_pointer_and_the_keyboard_read_values(opened):
    from selenium.webdriver import ActionChains, Keys

    (panel,) = find(opened, "#study-0 .curves .panel:nth-child(1) svg")
    (tip,) = find(opened, "#tip")
    assert not tip.is_displayed()
    ActionChains(opened).move_to_element(panel).perform()
    assert tip.is_displayed()
    assert "FOCUS" in tip.text
    assert 20 < int(re.match(r"rounds: (\d+)", tip.text)[1]) < 40  # of 60, the middle
    by_pointer = tip.text
    panel.send_keys(Keys.ARROW_RIGHT)
    assert tip.text != by_pointer
    before = paths(opened)
    panel.send_keys("+")
    assert paths(opened)[0] != before[0]
    panel.send_keys(Keys.ESCAPE)
    assert paths(opened) == before


def test_dragging_across_a_panel_looks_closer(opened):
    from selenium.webdriver import ActionChains

    (panel,) = find(opened, "#study-0 .curves .panel:nth-child(1) svg")
    before = paths(opened)
    drag = ActionChains(opened).move_to_element_with_offset(panel, -50, 0)
    drag.click_and_hold().move_by_offset(100, 0).release().perform()
    assert paths(opened)[0] != before[0]
    ActionChains(opened).double_click(panel).perform()
    assert paths(opened) == before


def test_the_table_is_sorted_by_a_click_and_by_the_keyboard(opened):
    from selenium.webdriver import Keys

    def column(number):
        cells = find(opened, f"#study-0 tbody td:nth-child({number})")
        return [cell.text.split("\n")[0] for cell in cells]

    heads = [head.text for head in find(opened, "#study-0 .wide th")]
    number = heads.index("relative error") + 1
    click(opened, f"#study-0 .wide th:nth-child({number}) button")
    head = find(opened, "#study-0 .wide th")[number - 1]
    assert head.get_attribute("aria-sort") == "ascending"
    values = [float(text.replace("∞", "inf")) for text in column(number)]
    assert values == sorted(values) and values[-1] == float("inf")
    head.find_element("css selector", "button").send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "descending"
    assert column(number)[0] == "∞"
    click(opened, "#study-0 .wide th:nth-child(2) button")
    assert column(2) == sorted(column(2), key=str.casefold)
    assert head.get_attribute("aria-sort") == "none"


def test_verdicts_are_words(opened):
    verdicts = {cell.text for cell in find(opened, "#study-0 td:nth-child(3) b")}
    assert verdicts == {"exact", "biased at 2.1e-2", "diverged in round 12"}
    reasons = {cell.text for cell in find(opened, "#study-0 td:nth-child(3) small")}
    assert "has settled away from the optimum" in reasons


def test_who_took_part_is_drawn_with_p_and_can_show_ages(opened):
    pictures = find(opened, "#study-0 .clients image")
    assert len(pictures) == 2
    assert len(find(opened, "#study-0 .clients .p")) == 12  # six clients, two scenarios
    before = [one.get_attribute("href") for one in pictures]
    click(opened, "#study-0 input[name=clients-0][value=age]")
    after = [one.get_attribute("href") for one in find(opened, "#study-0 image")]
    assert all(a != b for a, b in zip(before, after, strict=True))
    assert "tracking gap at most 1.0e-15" in find(opened, "#study-0 .clients figcaption")[0].text


def test_a_grid_shows_its_best_step_and_all_of_them_on_request(opened):
    def rows():
        return sum(row.is_displayed() for row in find(opened, "#study-1 .wide tbody tr"))

    def labels():
        return [one.text for one in find(opened, "#study-1 .legend button")]

    assert rows() == 1 and labels() == ["FOCUS (lr 0.1)"]
    click(opened, "#study-1 .controls input[value=all]")
    assert rows() == len(paths(opened, 1)) == 2
    assert labels() == ["FOCUS (lr 0.1)", "FOCUS (lr 0.2)"]
    assert said(opened, 1) == "every step size is shown"
    click(opened, "#study-1 .rows input[value=best]")  # beside the table, too
    assert rows() == len(paths(opened, 1)) == 1
    assert find(opened, "#study-1 .controls input[value=best]")[0].is_selected()


def said(browser, study):
    return find(browser, f"#study-{study} .said")[0].get_attribute("textContent")


def test_a_grid_has_a_figure_of_errors_by_step_size_and_others_have_none(opened):
    assert not find(opened, "#study-0 .steps")[0].is_displayed()
    assert len(find(opened, "#study-1 .steps .step-curve")) == 1
    assert len(find(opened, "#study-1 .steps .mark")) == 2
    name = find(opened, "#study-1 .steps .y-name")[0]
    assert name.get_attribute("textContent") == "relative gradient at the end"
    click(opened, "#study-1 .heights input[value=rounds_to_target]")
    name = find(opened, "#study-1 .steps .y-name")[0]
    assert name.get_attribute("textContent") == "rounds to 1e-8"


def test_the_legend_says_what_it_hides(opened):
    (told,) = find(opened, "#study-0 .said")
    assert told.get_attribute("aria-live") == "polite"
    click(opened, "#study-0 .legend button:nth-child(2)")
    assert said(opened, 0) == "FedAvg hidden: 2 of 3 curves are shown"
    click(opened, "#study-0 .legend button:nth-child(2)")
    assert said(opened, 0) == "FedAvg shown: 3 of 3 curves are shown"


def test_the_predicted_bias_is_said_to_be_of_the_mean_iterate(opened):
    keys = [one.text for one in find(opened, "#study-0 .legend .key")]
    assert "predicted bias, of the mean iterate" in keys


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_wider_than_the_window(opened, width, scheme):
    look(opened, width, scheme)
    drawn(opened)
    opened.execute_script(  # what is folded away must not be wide either
        "document.querySelectorAll('details').forEach((one) => { one.open = true })"
    )
    inner, scroll = opened.execute_script(
        "return [innerWidth, document.scrollingElement.scrollWidth]"
    )
    assert inner == width and scroll <= width


def test_downloads_hold_what_is_shown(opened, tmp_path):
    opened.execute_cdp_cmd(
        "Browser.setDownloadBehavior",
        {"behavior": "allow", "downloadPath": str(tmp_path)},
    )
    for number in range(1, 6):
        click(opened, f"#study-1 .downloads button:nth-of-type({number})")
    wanted = [f"grid{end}" for end in ("-curves.csv", "-table.csv", ".json", ".svg", ".png")]
    # A download's name is taken by an empty file until all of it is there.
    files = [tmp_path / name for name in wanted]
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if all(file.is_file() and file.stat().st_size for file in files):
            break
        time.sleep(0.1)
    curves, table, data, drawing, picture = (file.read_bytes() for file in files)
    assert curves.decode().startswith("participation,curve,lr,local_steps,round")
    assert len(curves.decode().splitlines()) == 1 + 2 * 3 * 61
    assert "FOCUS,exact,0.1" in table.decode() and "FOCUS,exact,0.2" in table.decode()
    assert json.loads(data)["name"] == "grid"
    assert drawing.decode().count('class="curve"') == 1
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


def test_printing_leaves_the_switches_out(opened):
    look(opened, 1400, "dark")
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    drawn(opened)
    (curve, *_) = find(opened, "#study-0 .curve[data-line='0']")
    assert curve.get_attribute("stroke") == COLOURS[0]  # as on white paper
    assert not find(opened, "#study-0 .controls")[0].is_displayed()
    assert find(opened, "#study-0 .curve")[0].is_displayed()
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
