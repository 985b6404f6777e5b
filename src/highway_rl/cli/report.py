"""The command of the report: one page of all that is stored."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from highway_rl.cli.console import progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Write one HTML page of the stored runs: claims with verdicts, figures, tables, and how each was measured.

    The page needs nothing beside itself: it opens without a network, on a phone and in the dark.

    highway-rl report --out report.html
    """

    results: Path = Path("results")
    """Folder of the stored rows, or of a sweep."""
    out: Path = Path("report.html")
    """The page."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl.experiments.report import report

        if self.out.suffix != ".html":
            raise ValueError(f"--out {self.out}: give a name that ends in .html")
        if not self.out.parent.is_dir():
            raise ValueError(f"--out {self.out}: {self.out.parent} is not there: make that folder first")
        if not self.results.is_dir():
            raise ValueError(f"{self.results} is not there: give --results a folder of stored runs, such as results")
        with progress("report") as step:
            path = report(self.results, self.out, step, workers=min(2, os.cpu_count() or 1))
        print(f"page: {path} ({path.stat().st_size / 1e6:.1f} MB)")
