"""List the fields of a class with the comments beside them: there this code says it."""

import griffe


class Comments(griffe.Extension):
    def on_class_members(self, *, cls, **kwargs):
        lines = []
        for name, field in cls.attributes.items():
            last = field.lines_collection[field.filepath][field.endlineno - 1]
            comment = last.partition("  # ")[2]
            if comment and "property" not in field.labels:
                lines.append(f"    {name}: {comment}")
        if lines:
            above = cls.docstring.value if cls.docstring else ""
            text = "\n".join([above, "", "Attributes:", *lines])
            cls.docstring = griffe.Docstring(text, parent=cls, parser="google")
