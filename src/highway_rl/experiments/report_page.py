"""How the page of `report` is written: HTML that needs nothing beside itself, neither files nor a network nor scripts.

Every text of rows, claims and tables goes through `html.escape`. Wide tables and figures scroll in boxes of their own,
so that the page itself is never wider than a phone. Figures lie on a white card in the dark, too.
"""

from __future__ import annotations

import base64
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from highway_rl.experiments.base import FAILS, HOLDS, NOT_RUN, PARTLY, Table
from highway_rl.runs.checkout import WHERE

if TYPE_CHECKING:
    from highway_rl.experiments.report import Origin, Picture, Section

PAPER = "https://arxiv.org/abs/2405.18289"
VERDICTS = {HOLDS: ("holds", "✓"), PARTLY: ("partly", "◐"), FAILS: ("fails", "✗"), NOT_RUN: ("notrun", "○")}
"""The class and the sign of a verdict; its word stands beside it, so that no one needs to see the colour."""
LONG = 12
"""Rows from which on a table is folded."""
LEAST, MOST = 0.55, 0.8
"""Shares of a figure's pixels: below the first its letters cannot be read, and narrower screens scroll it; with the
second they are as large as those of the page."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --card: #f4f6f7; --text: #1b1f23; --soft: #515a63; --line: #c9d0d6; --link: #00617a;
  --holds: #00558c; --partly: #8a5200; --fails: #a32a12; --notrun: #59616a; --sign: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181b; --card: #1e2428; --text: #e6eaed; --soft: #a9b3bc; --line: #3b444b; --link: #6cc9e0;
    --holds: #7cc0f2; --partly: #f0b35a; --fails: #ff9478; --notrun: #aab3bb; --sign: #14181b;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--text); overflow-wrap: anywhere;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif;
}
header, main, footer { max-width: 76rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.5rem; }
p, li { max-width: 46rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.4rem; line-height: 1.25; margin: 0 0 .25rem; }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .5rem; }
h2 small { font-size: .95rem; font-weight: normal; color: var(--soft); margin-left: .35rem; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip, .claims caption { position: absolute; left: -100vw; width: 80vw; }
.skip:focus { left: 1rem; top: .5rem; width: auto; padding: .3rem .6rem; background: var(--page); z-index: 1; }
code { font: .875em/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
dd code { background: var(--card); padding: .1rem .35rem; border-radius: .25rem; }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; max-width: none; }
nav a { display: inline-block; padding: .25rem 0; }
section { border-top: 1px solid var(--line); padding: 1.5rem 0; scroll-margin-top: 1rem; }
.count { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .5rem; }
.verdict {
  display: inline-block; white-space: nowrap; padding: .05rem .55rem; border-radius: 1rem;
  background: var(--notrun); color: var(--sign); font-size: .875rem; font-weight: 600;
}
.holds { background: var(--holds); } .partly { background: var(--partly); } .fails { background: var(--fails); }
.box { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .35rem 0; }
th, td { text-align: left; vertical-align: top; padding: .4rem .9rem .4rem 0; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; }
tbody th { font-weight: normal; }
.box table { width: max-content; }
.box td, .box th { overflow-wrap: normal; max-width: 24rem; }
.claims { width: 100%; }
.claims th:first-child { width: 4rem; } .claims th:nth-child(2) { width: 38%; }
.claims th:nth-child(4) { width: 9.5rem; }
figure { margin: 1rem 0 1.5rem; }
figure .box { background: #ffffff; border: 1px solid var(--line); border-radius: .5rem; padding: .5rem; }
figure img { display: block; width: 100%; height: auto; margin: 0 auto; }
figcaption { color: var(--soft); font-size: .875rem; padding-top: .25rem; }
details { margin: .75rem 0; } summary { cursor: pointer; padding: .25rem 0; font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; }
footer { border-top: 1px solid var(--line); color: var(--soft); padding-bottom: 2rem; font-size: .9rem; }
@media (max-width: 44rem) {
  h1 { font-size: 1.5rem; } h2 small { display: block; margin-left: 0; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; }
  .claims thead { display: none; }
  .claims, .claims tbody { display: block; }
  .claims tr {
    display: flex; flex-wrap: wrap; justify-content: space-between; margin: .75rem 0; padding: .5rem .75rem;
    border: 1px solid var(--line); border-radius: .5rem;
  }
  .claims td, .claims tbody th, .claims th:first-child { border: 0; padding: .15rem 0; width: auto; }
  .claims td:nth-child(2), .claims td.measured { order: 1; flex: 0 0 100%; }
  .claims tbody th::before { content: "Claim "; } .claims .measured { color: var(--soft); }
}
@media print {
  :root { color-scheme: light; }
  nav, .skip { display: none; } section { break-inside: auto; } figure, tr { break-inside: avoid; }
  .box { overflow: visible; } figure img { min-width: 0 !important; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
"""

WORDS = {
    "seed": "a run of its own: everything random in it is drawn anew. Intervals in brackets are 95 %, over seeds",
    "training": "the score of the episodes of training, with ε = 0.1 in the end: the mean over the last quarter",
    "all of training": "the mean of the whole learning curve, which is higher the sooner it rises",
    "greedy": "the score of test episodes at the end, with the networks' best action at every step",
    "at ε": "the same with the ε of training, 0.1: so many of the actions are random",
    "k": "how many networks an agent has, of whose values the smallest counts",
    "n": "how many steps a return looks ahead; ∞ is to the end of the episode",
    "the screen": "short runs of every k and n; the best of each game were then trained for long, with other seeds",
    "delay": "all reward of an episode is paid at its end; a game's name then ends in -Delay",
}
"""What is said on the page again and again, for those who begin there."""

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""What a browser may load: nothing that does not stand in the page."""


def page(claims: list[dict[str, Any]], sections: Sequence[Section]) -> str:
    """The whole page: all claims first, where there are any, then a section for each experiment."""
    places = {claim["id"]: section.name for section in sections for claim in section.claims}
    counts = Counter(claim["verdict"] for claim in claims)
    tally = "".join(f"<li>{badge(verdict, counts[verdict])}</li>" for verdict in VERDICTS if counts[verdict])
    contents = "".join(f'<li><a href="#{_id(s.name)}">{escape(s.name)}</a></li>' for s in sections)
    judged = f"""<section id="claims">
<h2>All claims</h2>
<ul class="count" aria-label="Verdicts">{tally}</ul>
{overview(claims, places)}
</section>
"""
    skip = '<a class="skip" href="#claims">To the claims</a>\n'
    paper = f'<a href="{PAPER}">Wang et al., 2024</a>'
    words = "".join(f"<dt>{escape(word)}</dt><dd>{escape(what)}</dd>" for word, what in WORDS.items())
    intro = f"""<p>Each claim of {paper}, judged by runs of this implementation. Figures, tables and
verdicts on this page come from the stored rows alone; each section says which command made them, and where.</p>
<dl aria-label="Words">{words}</dl>
<nav aria-label="Contents"><ul><li><a href="#claims">All claims</a></li>{contents}</ul></nav>
"""
    if not claims:
        judged, skip, intro = "", "", "<p>Tables on this page come from the stored rows alone.</p>\n"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>Highway reinforcement learning: what was measured</title>
<style>{STYLE}</style>
</head>
<body>
{skip}<header>
<h1>Highway reinforcement learning: what was measured</h1>
{intro}</header>
<main>
{judged}{"".join(map(experiment, sections))}
</main>
<footer><p>Made by <code>highway-rl report</code>. The same rows give the same page.</p></footer>
</body>
</html>
"""


def _id(name: str) -> str:
    """The name of an experiment as an anchor."""
    return "experiment-" + "".join(letter if letter.isalnum() else "-" for letter in name)


def badge(verdict: str, count: int | None = None) -> str:
    """A verdict as a sign and a word on a colour, and how many there are."""
    kind, sign = VERDICTS.get(verdict, VERDICTS[NOT_RUN])
    words = escape(verdict) + ("" if count is None else f": {count}")
    return f'<span class="verdict {kind}"><span aria-hidden="true">{sign}</span> {words}</span>'


def overview(claims: list[dict[str, Any]], places: dict[int, str]) -> str:
    """Every claim; long measurements are cut, and whole in the section of their experiment."""
    return claim_table(
        "What the paper says and what was measured",
        [
            (
                f'<a href="#{_id(places[c["id"]])}">{c["id"]}</a>' if c["id"] in places else str(c["id"]),
                c["statement"],
                textwrap.shorten(c["value"], 220, placeholder=" …"),
                c["verdict"],
            )
            for c in claims
        ],
    )


def claim_table(caption: str, lines: Iterable[tuple[str, str, str, str]]) -> str:
    """Number (as HTML), statement, measurement, verdict. Narrow screens show a card for each, hence the roles."""
    head = "".join(
        f'<th scope="col" role="columnheader">{name}</th>'
        for name in ("Claim", "The paper says", "Measured", "Verdict")
    )
    body = "".join(
        f'<tr role="row"><th scope="row" role="rowheader">{number}</th><td role="cell">{escape(statement)}</td>'
        f'<td role="cell" class="measured">{escape(value)}</td><td role="cell">{badge(verdict)}</td></tr>\n'
        for number, statement, value, verdict in lines
    )
    return (
        f'<table class="claims" role="table"><caption>{escape(caption)}</caption>'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead><tbody role="rowgroup">\n{body}</tbody></table>'
    )


def experiment(section: Section) -> str:
    """A section: what it shows, its figures, its claims, its tables, and how it was measured."""
    paper = "not in the paper" if section.paper == "none" else f"the paper's {section.paper}"
    run = section.command or f"highway-rl run {section.name} --scale {section.scale}"
    command, scale = (
        f"<code>{escape(run)}</code>",
        f"<dt>Scale</dt><dd>{escape(section.scale)}</dd>" * bool(section.scale),
    )
    parts = [
        f'<section id="{_id(section.name)}">\n<h2>{escape(section.name)} <small>{escape(paper)}</small></h2>',
        f"<p>{escape(section.summary[:1].upper() + section.summary[1:])}.</p>",
        *(f"<p>{escape(note)}</p>" for note in section.notes),
    ]
    if not section.origins:
        parts.append(f"<p>{badge(NOT_RUN)} Its rows are made with {command}</p>")
    parts += [picture(one, section) for one in section.pictures]
    if section.claims:
        lines = [(str(c["id"]), c["statement"], c["value"], c["verdict"]) for c in section.claims]
        parts.append(f"<h3>Claims</h3>\n{claim_table(f'Judged by the rows of {section.name}', lines)}")
    if section.tables:
        parts.append("<h3>Tables</h3>\n" + "\n".join(map(table, section.tables)))
    if section.origins:
        parts.append(
            f"<h3>How it was measured</h3>\n<dl><dt>Command</dt><dd>{command}</dd>{scale}"
            f"<dt>Size</dt><dd>{escape(section.size)}</dd>{again(section)}</dl>\n" + made_by(section.origins)
        )
    return "\n".join([*parts, "</section>\n"])


def again(section: Section) -> str:
    """How one of its training runs is made again, by today's code and by that which made it."""
    if not section.again:
        return ""
    today = f"highway-rl run {section.name} --cell ID"
    lines = " then ".join(f"<code>{escape(line)}</code>" for line in section.again)
    return (
        f"<dt>One run again</dt><dd><code>{escape(today)}</code> with today's code, beside its numbers; ID stands in"
        f" the tables above</dd><dt>By its own code</dt><dd>{escape(WHERE.format(commit='COMMIT'))}: {lines}; the"
        " command above says which COMMIT made a run</dd>"
    )


def picture(one: Picture, section: Section) -> str:
    """A figure in the page, on a white card that scrolls where the screen is too narrow to read it."""
    shows = f"{one.title}. Figure of the experiment {section.name}: {section.summary}"
    source = f"data:image/png;base64,{base64.b64encode(one.data).decode()}"
    style = f"min-width:{round(LEAST * one.width)}px;max-width:{round(MOST * one.width)}px"
    image = f'<img src="{source}" alt="{escape(shows)}" width="{one.width}" height="{one.height}" style="{style}">'
    box = f'<div class="box" role="region" tabindex="0" aria-label="{escape(f"Figure: {one.title}")}">{image}</div>'
    return f"<figure>{box}<figcaption>{escape(one.title)}</figcaption></figure>"


def table(one: Table) -> str:
    """A table in a box of its own, folded where it is long."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in one.columns)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(text)}</td>" for text in rest)}</tr>\n'
        for first, *rest in one.rows
    )
    box = (
        f'<div class="box" role="region" tabindex="0" aria-label="{escape(one.title)}"><table>'
        f"<caption>{escape(one.title)}</caption><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>"
    )
    if len(one.rows) < LONG:
        return box
    return f"<details><summary>{escape(one.title)} ({len(one.rows):,} rows)</summary>{box}</details>"


def made_by(origins: Sequence[Origin]) -> str:
    """Which code made the rows, where and when; one line for each that differs."""
    columns = [name for name in origins[0].facts if any(origin.facts.get(name) for origin in origins)]
    lines = [(origin.amount, *(origin.facts.get(name, "") for name in columns)) for origin in origins]
    return table(Table("What made the rows", ("how many", *columns), lines))
