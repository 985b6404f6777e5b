"""Put on the site what stored rows give: their report, made anew (`highway-rl report` makes the same), and figures.

Pages name a figure as it lies in the repository, `../results/NAME.png`.
"""

import functools
import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from highway_rl.experiments.report import report


@functools.cache  # once, also where `mkdocs serve` builds again and again
def page(results: Path) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return report(results, Path(folder) / "report.html").read_bytes()


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    results = Path(config.config_file_path).parent / "results"
    files.append(File.generated(config, "report.html", content=page(results)))
    for figure in sorted(results.glob("*.png")):
        files.append(File.generated(config, f"results/{figure.name}", abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    return markdown.replace("](../results/", "](results/")
