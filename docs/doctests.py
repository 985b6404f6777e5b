"""Show the doctests of the API page as code: a run of lines from `>>>` to the next blank line."""

from typing import Any

import griffe


def fence_doctests(text: str) -> str:
    """The text with every doctest between fences, which Markdown would otherwise take for quotations.

    >>> fence_doctests("One line.\\n>>> 1 + 1\\n2").splitlines()
    ['One line.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    lines: list[str] = []
    inside = False
    for line in [*text.splitlines(), ""]:
        if line.startswith(">>>") and not inside:
            inside = True
            lines += ["", "```pycon"]
        elif inside and not line.strip():
            inside = False
            lines.append("```")
        lines.append(line)
    return "\n".join(lines[:-1])


class Doctests(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fence_doctests(obj.docstring.value)
