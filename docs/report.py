"""Put the report of the stored rows on the site, made anew with it (`highway-rl report` makes the same page)."""

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
    return files
