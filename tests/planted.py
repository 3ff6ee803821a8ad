"""The implementation of docs/conformance.md, and what somebody may get wrong in it."""

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "conformance.md"
(EXAMPLE,) = re.findall("```python\n(.*?)```", PAGE.read_text(), re.S)


def written(*changes: tuple[str, str]) -> type:
    """The page's implementation, with lines that somebody got wrong."""
    code = EXAMPLE
    for right, wrong in changes:
        assert code.count(right) == 1, right
        code = code.replace(right, wrong)
    names: dict = {}
    exec(code, names)
    return names["Mine"]
