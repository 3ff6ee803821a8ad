"""Ask whether a version in constraints.txt is known to be vulnerable.

    python tools/audit.py [options of pip-audit]

Run it by `make audit`. It fails if one is. Without a network, or where the package index
gives no advisories, it says in one line that it was skipped.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).resolve().parents[1] / "constraints.txt"
SERVICES = ("pypi", "osv")  # the second is asked where the first has no answer
LOOK = (
    "--requirement", str(LOCK), "--no-deps", "--disable-pip", "--format", "json",
    "--progress-spinner", "off", "--timeout", "30",
)  # fmt: skip


def look(service: str, options: list[str]) -> list[dict]:
    """Ask one service; the packages that it knows, or none where it cannot be reached."""
    command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", service]
    done = subprocess.run([*command, *LOOK, *options], capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:  # no answer, and no report
        if re.search(r"requests\.exceptions|ServiceError|ConnectionError", done.stderr):
            return []
        sys.exit(f"audit: pip-audit failed: {done.stderr.strip()[-2000:]}")
    return [package for package in packages if "vulns" in package]


def main() -> None:
    options = sys.argv[1:]
    services = SERVICES[1:] if "--osv-url" in options else SERVICES  # a server of one's own
    known = next(filter(None, (look(service, options) for service in services)), [])
    if not known:
        print("audit: skipped, as no advisory service answers here.")
        return
    wrong = [(package, vuln) for package in known for vuln in package["vulns"]]
    for package, vuln in wrong:
        fixed = ", ".join(vuln["fix_versions"]) or "no version"
        print(f"{package['name']} {package['version']}: {vuln['id']}, mended in {fixed}")
    if wrong:
        sys.exit("audit: raise these in pyproject.toml, then make lock.")
    print(f"audit: none of {len(known)} versions is known to be vulnerable.")


if __name__ == "__main__":
    main()
