"""The page of `flambeau explore` and its server, over loopback; no browser is needed."""

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib import resources

import pytest

from flambeau.cli.explore import TEXTS, ask, browser
from flambeau.cli.explore.server import LARGEST, Server, page_files
from flambeau.cli.usage import UsageError

PAGE = resources.files("flambeau.cli.explore").joinpath("page")


def echo(asked):
    if asked.get("wrong"):
        raise UsageError("this is wrong")
    if asked.get("fault"):
        raise ZeroDivisionError("by 0")
    return {"asked": asked}


@pytest.fixture(scope="module")
def server():
    with Server(0, {"echo": echo, "broadcasting": ask("broadcasting")}) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def send(server, method, place, body=None, token=None, **headers):
    """(status, headers, body) of one request; headers replace what a browser would send."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    path = f"/{server.token if token is None else token}/{place}"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body=body, headers=named)
    reply = connection.getresponse()
    found = reply.status, dict(reply.getheaders()), reply.read()
    connection.close()
    return found


def question(server, place="echo", body=b"{}", **headers):
    headers = {"Content_Type": "application/json", **headers}
    status, _, reply = send(server, "POST", place, body, **headers)
    return status, json.loads(reply)


def test_the_page_is_served_behind_its_token(server):
    status, headers, body = send(server, "GET", "")
    assert status == 200 and body == PAGE.joinpath("index.html").read_bytes()
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
    assert send(server, "GET", "style.css")[1]["Content-Type"] == "text/css; charset=utf-8"
    for token in ("", "x", "x" * len(server.token), "%C3%A4"):
        assert send(server, "GET", "", token=token)[0] == 404
    assert len(server.token) >= 20 and server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("place", ["nothing", "../server.py", "..%2fserver.py", "page/index.html",
                                   "index.html/", "/etc/passwd"])
def test_only_the_files_of_the_page_are_served(server, place):
    assert send(server, "GET", place)[0] == 404


@pytest.mark.parametrize("headers", [
    {"Host": "evil.example"}, {"Host": "127.0.0.1"}, {"Host": "127.0.0.1:1"}, {"Host": ""},
    {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "https://127.0.0.1"}])
def test_pages_from_elsewhere_are_turned_away(server, headers):
    assert send(server, "GET", "", **headers)[0] == 403
    assert question(server, **headers)[0] == 403


def test_its_own_page_is_answered(server):
    host = f"localhost:{server.server_port}"
    status, answer = question(server, body=b'{"a": 1}', Host=host, Origin=f"http://{host}")
    assert (status, answer) == (200, {"asked": {"a": 1}})
    assert question(server, body=b'{"wrong": true}') == (200, {"error": "this is wrong"})
    status, answer = question(server, body=b'{"fault": true}')
    assert status == 500 and "fault of its own: ZeroDivisionError: by 0" in answer["error"]
    shapes = json.dumps({"shapes": ["64,1", "768"]}).encode()
    assert question(server, "broadcasting", shapes)[1]["result"]["shape"] == [64, 768]


@pytest.mark.parametrize(("body", "status"), [
    (b"", 400), (b"{", 400), (b"[]", 400), (b"3", 400), (b"\xff", 400), (b"[" * 9000, 400),
    (b" " * (LARGEST + 1), 413)])
def test_what_is_no_question_is_refused(server, body, status):
    assert question(server, body=body)[0] == status


def test_kinds_and_lengths_are_checked(server):
    assert question(server, Content_Type="text/plain")[0] == 415
    assert question(server, "nothing")[0] == 404
    for length in ("", "x", "-1", "1e3"):
        assert question(server, Content_Length=length)[0] in (400, 411), length
    assert question(server, Content_Length="9" * 30)[0] == 413
    assert send(server, "PUT", "echo")[0] == 501 and send(server, "OPTIONS", "echo")[0] == 501


def test_one_that_says_nothing_holds_nobody_up(server):
    with socket.create_connection(("127.0.0.1", server.server_port)):
        began = time.perf_counter()
        assert question(server)[0] == 200
        assert time.perf_counter() - began < 5


def test_answers_hold_no_number_that_json_has_not(server):
    def told(text):
        raise AssertionError(text)

    for name, asked in {"loop": {"lr": 90, "steps": 90}, "graph": {"program": "L = a/0"},
                        "strides": {}, "broadcasting": {}}.items():
        json.loads(json.dumps(ask(name)(asked), allow_nan=False), parse_constant=told)


# -- the page itself -----------------------------------------------------------------------------


def source(name):
    return PAGE.joinpath(name).read_text(encoding="utf-8")


def scripts():
    return {name: body.decode() for name, (_, body) in page_files().items() if name.endswith(".js")}


def test_the_page_needs_nothing_from_elsewhere():
    for name, (_, body) in page_files().items():
        found = set(re.findall(r"\w+://[^\s'\"]*", body.decode())) - {"http://www.w3.org/2000/svg"}
        assert not found, (name, found)
    html = source("index.html")
    assert not re.search(r"\son\w+=|\sstyle=|<script>|<style", html)  # the policy would refuse them
    wanted = set(re.findall(r'(?:href|src)="([\w.]+)"', html))
    for text in scripts().values():
        wanted |= set(re.findall(r'from\s+"\./([\w.]+)"', text))
    assert {"index.html", *wanted} == set(page_files())


def test_scripts_and_page_agree_on_names():
    html = source("index.html")
    there = re.findall(r'\bid="([\w-]+)"', html)
    assert len(there) == len(set(there))
    made = {"switch-lr", "switch-eval", "shape-2"}  # by scripts, for tables of theirs
    asked = {name for text in scripts().values() for name in re.findall(r'\$\("([\w-]+)"\)', text)}
    assert asked - made <= set(there)
    for name in re.findall(r'(?:aria-controls|aria-labelledby|for)="([\w-]+)"', html):
        assert name in there, name
    assert set(re.findall(r'role="tabpanel"[^>]*', html)) and all(
        f'id="{name}"' in html for name in TEXTS)


def test_scripts_ask_only_what_is_answered():
    asked = {name for text in scripts().values() for name in re.findall(r'\bask\("(\w+)"', text)}
    assert asked == {"broadcasting", "strides", "graph", "loop"}
    assert all(callable(ask(name)) for name in asked)


def test_no_script_runs_what_is_written():
    for name, text in scripts().items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|new Function|document\.write",
                             text), name
        assert not re.search(r"(?<!model\.)\beval\((?!\))", text), name


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_scripts_can_be_read(tmp_path):
    for name, text in scripts().items():
        path = tmp_path / name.replace(".js", ".mjs")
        path.write_text(text)
        done = subprocess.run(["node", "--check", path], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


# -- the command ---------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="there Ctrl-C is sent another way")
def test_the_command_serves_until_it_is_interrupted():
    started = subprocess.Popen(
        [sys.executable, "-m", "flambeau", "explore", "graph", "--no-browser"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first, second = started.stdout.readline(), started.stdout.readline()
    port, token = re.fullmatch(
        r"flambeau explore: http://127\.0\.0\.1:(\d+)/([\w-]+)/#graph\n", first).groups()
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
    connection.request("POST", f"/{token}/graph", b'{"inputs": {"a": 2, "b": 3}}',
                       {"Content-Type": "application/json"})
    assert json.loads(connection.getresponse().read())["nodes"][0]["grad"] == 64
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=20)
    assert second == "Open this address in a browser. Ctrl-C ends it.\n"
    assert (started.returncode, out, err) == (0, "\n", "")


def test_a_taken_port_is_told(server, capsys):
    from flambeau.cli import main

    assert main(["explore", "--port", str(server.server_port), "--no-browser"]) == 2
    assert "without --port a free one is found" in capsys.readouterr().err


def test_a_browser_is_opened_only_where_there_is_a_window(monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    assert not browser.open_page("x")
    monkeypatch.setenv("DISPLAY", ":0")
    assert browser.open_page("y") and opened == ["y"]
    monkeypatch.setenv("SSH_CONNECTION", "1 2 3 4")
    assert not browser.open_page("z") and opened == ["y"]
