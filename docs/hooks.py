"""What the site adds to docs/: experiments, notebooks, references, links that hold.

Pages are written to be read in the repository. Their links to each other lead to the
same pages of the site; a link to any other file of the repository becomes plain text.
"""

import base64
import json
import os
import re
from pathlib import Path

import reference
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
ALSO = ("experiments/**/*.md", "experiments/**/*.png", "examples/*/README.md")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def on_files(files, config):
    """Show the experiments and examples where they are, and notebooks as pages."""
    for pattern in ALSO:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        name = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, name, content=notebook(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Put references in; point links of the repository to pages of the site."""
    place = page.file.src_uri  # in docs/, unless it is a file added from beside it
    inside = page.file.abs_src_path is None or (ROOT / "docs" / place).exists()
    here = (ROOT / "docs" if inside else ROOT) / os.path.dirname(place)

    def moved(match):
        image, text, target, anchor = match.groups()
        if ":" in target:
            return match[0]
        path = os.path.relpath(here / target, ROOT)
        name = path.removeprefix("docs/")
        shown = name.replace(".ipynb", ".md")  # a notebook's own link is to its file
        found = files.get_file_from_path(name if shown == place else shown)
        if found is None:
            return text if (ROOT / path).exists() else match[0]
        link = os.path.relpath(found.src_uri, os.path.dirname(place) or ".")
        return f"{image}[{text}]({link}{anchor or ''})"

    return LINK.sub(moved, reference.filled(markdown))


def notebook(path: Path) -> str:
    """Write an executed notebook as a page: text, code, and what the code gave."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_shown(output) for output in cell["outputs"]]
    parts.append(f"[This page as a notebook]({path.name})")
    return "\n\n".join(parts) + "\n"


def _shown(output: dict) -> str:
    data = output.get("data", {})
    for kind in ("image/svg+xml", "image/png"):
        if kind in data:
            text = "".join(data[kind])
            if kind.endswith("xml"):
                text = base64.b64encode(text.encode()).decode()
            return f'<img alt="what the cell has drawn" src="data:{kind};base64,{text}">'
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f"``` {{.text .output}}\n{text.rstrip()}\n```"
