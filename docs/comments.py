"""Say on the API pages what this code says elsewhere: beside a field, in a sibling.

The fields of a class are listed with the comments beside them. A function that says
"All else is as in `simulate`." gets the other arguments from there.
"""

import re

import griffe

SIBLING = "simulation.api.simulate"
LIKE = ("simulation.api.sweep", "simulation.reference.loop")


class Comments(griffe.Extension):
    def on_class_members(self, *, cls, **kwargs):
        lines = []
        for name, field in {**inherited(cls), **cls.attributes}.items():
            last = field.lines_collection[field.filepath][field.endlineno - 1]
            comment = last.partition("  # ")[2].replace("*", r"\*")  # x* is no emphasis
            if comment and "property" not in field.labels:
                lines.append(f"    {name}: {comment}")
        if lines:
            above = cls.docstring.value if cls.docstring else ""
            text = "\n".join([above, "", "Attributes:", *lines])
            cls.docstring = griffe.Docstring(text, parent=cls, parser="google")

    def on_package(self, *, pkg, **kwargs):
        if pkg.name != "focusfl":
            return
        known = arguments(pkg[SIBLING].docstring.value)
        for function in (pkg[path] for path in LIKE):
            text = function.docstring.value
            if "as in `simulate`" in text:
                own = arguments(text)
                lines = [
                    own.get(parameter.name) or known[parameter.name]
                    for parameter in function.parameters
                ]
                above = text[: text.index("Args:\n")]
                function.docstring.value = above + "Args:\n" + "\n".join(lines)


def inherited(cls: griffe.Class) -> dict[str, griffe.Attribute]:
    """The fields of the bases in the class's own file: what its siblings share."""
    found: dict[str, griffe.Attribute] = {}
    for base in cls.bases:
        parent = cls.parent.members.get(str(base)) if cls.parent else None
        if isinstance(parent, griffe.Class):
            found |= inherited(parent) | parent.attributes
    return found


def arguments(text: str) -> dict[str, str]:
    """The lines of every argument in a docstring."""
    found = re.search(r"^Args:\n((?:    .*\n?)+)", text, re.M)
    each = re.findall(r"^(    (\w+): .*(?:\n {8}.*)*)", found[1], re.M)
    return {name: lines for lines, name in each}
