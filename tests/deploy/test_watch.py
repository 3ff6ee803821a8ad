"""What operators see: `deploy status`, the page of `deploy watch`, and /metrics."""

import contextlib
import json
import shutil
import socket
import threading
import time
import urllib.request
from http.client import HTTPConnection

import pytest
from loopback import FOCUS, Loopback, job, nodes
from prometheus_client.parser import text_string_to_metric_families

from focusfl.cli import main
from focusfl.deploy import local, monitor
from focusfl.deploy.watch import OF_JOB, Watch, exposition, without_infinity
from focusfl.flower import client_app, events
from focusfl.flower.app import run


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A run that was killed in round 9: site-3 is refused, site-2 is away."""
    folder = tmp_path_factory.mktemp("ran")

    def happen(grid, round):
        if round == 6:
            grid.nodes[103].app = client_app(lambda x, batch: x + 1e9, FOCUS)
        if round == 5:
            grid.nodes.pop(102, None)
        if round == 9:
            raise KeyboardInterrupt

    this = job(folder, rounds=12, max_norm=1e6, deadline=0.05)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("focusfl.flower.server.LOOK", 1)  # who is away is seen
        run(Loopback(nodes(folder), happen), this)
    return folder


@pytest.fixture
def place(ran, tmp_path):
    """Its folder, to be changed."""
    return shutil.copytree(ran / "server", tmp_path / "server") / "test"


@pytest.fixture
def served(place):
    with Watch(place.parent, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(server, path):
    with urllib.request.urlopen(server.url + path, timeout=30) as answer:
        return answer.read().decode()


def health(server):
    return json.loads(get(server, "health.json"))["jobs"]["test"]


def test_status_says_who_is_refused_away_and_how_old_memories_are(place, capsys):
    assert main(["deploy", "status", str(place.parent)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "9/12 rounds" in said and "not healthy" in said
    assert "site-3 was refused 3 times" in said
    assert main(["deploy", "status", str(place), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    assert found["progress"].startswith("9/12 rounds") and found["processes"] == []
    sites = found["health"]["sites"]
    states = {name: (one["state"], one["age"]) for name, one in sites.items()}
    assert states == {
        "site-0": ("on time", 0), "site-1": ("on time", 0), "site-2": ("offline", 4),
        "site-3": ("refused", 3),
    }  # fmt: skip
    assert sites["site-3"]["recent"] == "xxxxxx..." and found["health"]["refused"] == 3
    assert "its norm is" in found["health"]["error"]


def test_a_fleet_of_which_nothing_runs_has_stopped(ran, tmp_path, capsys):
    """It was said to run, under a table in which every process had ended."""
    fleet = tmp_path / "fleet"
    shutil.copytree(ran / "server", fleet / "server")
    (fleet / "processes.json").write_text('{"superlink": [1, "no such word"]}')
    assert main(["deploy", "status", str(fleet)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "stopped after round 9 of 12" in said and "running" not in said
    assert main(["deploy", "status", str(fleet), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    assert found["health"]["state"] == "stopped"
    with Watch(fleet, 0) as server:
        (job,) = server.look().values()
    assert job["state"] == "stopped"


def test_health_of_sites_and_of_learning_are_two_words(place, capsys):
    """All sites answer, and the loss grows fourfold: that is not healthy."""
    kept = [e for e in events.read(place) if e["event"] in ("begin", "open")][:2]
    (place / events.FILE).unlink()
    site = {"counted": ["site-0"], "missing": [], "late": [], "online": ["site-0"]}
    more = {"rounds": 9, "seconds": 1.0, "eta": 1.0, "event": "round", **site}
    events.write(place, {**kept[0], "everybody": ["site-0"], "metrics": {}})
    for number, loss in enumerate((1.0, 0.5, 0.8, 2.1)):
        metrics = {"loss": loss, "grad_norm": loss}
        events.write(place, {**more, "round": number, "metrics": metrics})
        assert main(["deploy", "status", str(place)]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "sites: healthy" in said
        assert ("learning: getting worse" in said) == (number == 3), said
    assert "loss 2.1, 4.2 times its best" in said
    found = monitor.health(place).as_dict()
    assert found["healthy"] and found["worse"]


def test_prometheus_reads_every_number_back(served):
    read = text_string_to_metric_families(get(served, "metrics"))
    families = {family.name: family for family in read}
    assert all(name.startswith("focusfl_") for name in families)

    def of(family, **labels):
        (value,) = [
            sample.value
            for sample in families[f"focusfl_{family}"].samples
            if labels.items() <= sample.labels.items()
        ]
        return value

    assert of("rounds") == 9 and of("rounds_planned") == 12 and of("healthy") == 0
    assert of("site_refused", site="site-3") == 3
    assert of("site_memory_age_rounds", site="site-2") == 4
    assert of("site_state", site="site-2", state="offline") == 1
    assert of("bytes", direction="up") > 1000 and of("strangers") == 0
    assert of("metric", name="distance") == health(served)["metrics"]["distance"]


def test_names_and_numbers_of_any_kind_stay_in_their_label():
    name = 'a"b\\c\nd{}\x1b'
    one = dict.fromkeys("counted late refused unanswered".split(), 0)
    job = {
        **dict.fromkeys(OF_JOB, 1),
        "sites": {name: {**one, "age": None, "state": "late"}},
        "bytes": {}, "metrics": {name: float("nan"), "big": float("inf")},
    }  # fmt: skip
    found = list(text_string_to_metric_families(exposition({name: job})))
    samples = [sample for family in found for sample in family.samples]
    assert {sample.labels["job"] for sample in samples} == {name}
    assert {sample.labels["site"] for sample in samples if "site" in sample.labels} == {name}
    metrics = [s.labels["name"] for s in samples if s.name == "focusfl_metric"]
    assert metrics == [name, "big"]
    assert without_infinity(job)["metrics"] == {name: None, "big": None}


def test_what_is_appended_is_seen_and_a_half_written_line_is_waited_for(served, place):
    assert health(served)["round"] == 9
    event = {**events.read(place)[-2], "event": "failed", "why": "no disk"}
    text = json.dumps(event) + "\n"
    with open(place / events.FILE, "a") as file:
        file.write(text[:20])
    assert health(served)["state"] == "running"
    with open(place / events.FILE, "a") as file:
        file.write(text[20:])
    assert health(served)["state"] == "failed" and health(served)["why"] == ["no disk"]


def test_a_server_that_starts_again_from_a_backup_is_followed_back(place):
    assert monitor.health(place).round == 9
    (begun,) = [e for e in events.read(place) if e["event"] == "begin"]
    events.write(place, {**begun, "round": 4})
    assert monitor.health(place).round == 4
    assert monitor.health(place).sites["site-1"].counted == 4
    (place / events.FILE).write_text("")
    assert monitor.health(place).state == "not begun"
    shutil.rmtree(place)
    assert monitor.health(place).state == "not begun"


def test_a_line_that_no_server_wrote_is_said_and_kills_nothing(served, place):
    with open(place / events.FILE, "a") as file:
        file.write('{"event": "round"}\n')
    found = health(served)
    assert found["state"] == "unreadable" and "no server wrote" in found["why"][0]


@pytest.mark.parametrize("line", [
    "[" * 10**5, '{"event":' * 10**5, '{"event": "begin", "time": "x", "round": 1, "rounds": 2}',
    '{"event": "evaluation", "after": 1, "metrics": {"loss": 1@}}'.replace("@", "0" * 400),
    '{"event": "evaluation", "after": 1, "metrics": {"x": @}}'.replace("@", "[" * 900 + "]" * 900),
    '{"event": "stranger", "why": "\\ud800"}', '{"event": "waiting", "missing": [[]]}',
    '{"event": "round", "round": 1, "rounds": 2, "seconds": null, "eta": 1, "counted": [7],'
    ' "missing": [], "late": []}',
], ids=lambda line: line[:40])  # fmt: skip
def test_no_forged_line_ends_a_request(served, place, line):
    with open(place / events.FILE, "a") as file:
        file.write(f"{line}\n")
    assert get(served, "metrics") and health(served)["job"] == "test"


def test_whoever_says_nothing_is_dropped_and_others_are_served_meanwhile(served):
    begin = time.monotonic()
    mute = [socket.create_connection(served.server_address) for _ in range(200)]
    for each in mute:
        each.sendall(b"GET / HTTP/1.1\r\nHost:")
    assert health(served)["job"] == "test" and time.monotonic() - begin < 4
    for each in mute:
        each.settimeout(15)
        with contextlib.suppress(ConnectionError):
            while each.recv(1000):
                pass
        each.close()
    assert time.monotonic() - begin < 15


def test_the_page_is_for_this_machine_and_changes_nothing(served):
    assert served.server_address[0] == "127.0.0.1"
    connection = HTTPConnection("127.0.0.1", served.server_address[1], timeout=30)
    for method, path, host, code in [
        ("GET", "/", "evil.org:80", 403), ("GET", "/../../etc/passwd", None, 404),
        ("GET", "/server.db", None, 404), ("POST", "/", None, 501),
        ("DELETE", "/", None, 501), ("HEAD", "/", None, 200),
    ]:  # fmt: skip
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == code and not (method == "HEAD" and content)
        connection.close()
    page = get(served, "")
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_watching_ends_with_an_interrupt_and_no_error(place, monkeypatch, capsys):
    def interrupted(server):
        raise KeyboardInterrupt

    monkeypatch.setattr(Watch, "serve_forever", interrupted)
    assert main(["deploy", "watch", str(place), "--port", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["url"].startswith("http://127.0.0.1:")


def test_a_wrong_port_or_folder_is_one_line(served, tmp_path, capsys):
    taken = str(served.server_address[1])
    for words in (["--port", taken], ["--port", "70000"], [str(tmp_path / "none")]):
        assert main(["deploy", "watch", *words]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "must be" in said


@pytest.mark.parametrize(
    ("why", "code"), [([], 0), (["site-1 never took part.", "so\x1b[31mme"], 1)]
)
def test_an_unhealthy_end_of_deploy_local_is_an_exit_code_and_a_line(
    why, code, tmp_path, monkeypatch, capsys
):
    import numpy as np

    (tmp_path / "study.toml").write_text(
        'rounds = 2\nlr = 0.1\n[problem]\nkind = "random_quadratic"\nnum_clients = 2\n'
        "[participation.full]\n[algorithms.focus]\n"
    )
    outcome = local.Outcome(
        np.ones((2, 2), bool), 0, {}, {"site-0": 2, "site-1": 0}, "nobody", why, 1, 1.0,
        why=why,
    )  # fmt: skip
    monkeypatch.setattr(local, "local_study", lambda *given, **more: outcome)
    monkeypatch.setattr("focusfl.cli.deploy._draw", lambda place: [])
    monkeypatch.chdir(tmp_path)
    assert main(["deploy", "local", "study.toml", "--json"]) == code
    said = capsys.readouterr()
    assert json.loads(said.out)["healthy"] is not bool(code)
    assert said.err.count("\n") == code and "\x1b" not in said.err
    if code:
        assert "not a healthy end: site-1 never took part." in said.err


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_shows_who_is_in_trouble_as_text(width, served, place, browser):
    from selenium.webdriver.support.ui import WebDriverWait

    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wait = WebDriverWait(browser, 60)
    name = "<img src=x onerror=alert(1)>"
    events.write(place, {"event": "nothing", "site": "site-1", "why": name})
    browser.get(served.url)
    wait.until(lambda b: b.find_elements("css selector", "tbody tr"))
    rows = [row.text for row in browser.find_elements("css selector", "tbody tr")]
    assert len(rows) == 4 and "site-3" in rows[0] and "refused" in rows[0]
    assert any(name in row for row in rows)
    assert not browser.find_elements("css selector", "td img")
    text = browser.find_element("css selector", "main").text
    assert "round 9 of 12" in text and "not healthy: site-3 was refused" in text
    wider = "return document.documentElement.scrollWidth > innerWidth"
    assert not browser.execute_script(wider)
    severe = [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    assert severe == []
