"""`focusfl completion`: what Tab offers; argcomplete asks the parser itself."""

import argparse
import json
import os

from focusfl.cli.options import Option, command
from focusfl.core.validation import unknown

SHELLS = ("bash", "fish", "zsh")
READY = "autoload -Uz compinit && compinit;"
ASKED = "_ARGCOMPLETE"  # set by the shell's function that Tab calls


def answer(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks what may come next, and end; else do nothing."""
    if ASKED in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser, always_complete_options=False)


@command(
    "completion", "print a script that lets a shell complete commands",
    "source <(focusfl completion bash)",
    Option("shell", words=SHELLS, help="bash, zsh or fish"),
)  # fmt: skip
def _completion(options: argparse.Namespace) -> int:
    import argcomplete

    if options.shell not in SHELLS:
        raise ValueError(unknown("shell", options.shell, SHELLS))
    how = f"source <(focusfl completion {options.shell})"
    if options.shell == "fish":
        how = "focusfl completion fish | source"
    script = argcomplete.shellcode(["focusfl"], shell=options.shell)
    if options.shell == "zsh":  # where no other script has made this ready
        script = f"(( $+functions[compdef] )) || {{ {READY} }}\n{script}"
    script = f"# For {options.shell}: {how}\n{script}"
    print(json.dumps({"script": script}) if options.json else script)
    return 0
