"""What is written down and drawn: rows in files, what made them, figures. Imports types, checks and version alone.

rows        CSV files that carry their provenance, a training folder's metrics, files that are whole or not there
provenance  code, device, versions and date of a number
figures     one colour for an algorithm in every figure; panels, bands, ticks
curves      the picture of a training folder

`provenance.provenance` is not lifted here: its name is its module's.
"""

from highway_rl.records.curves import draw
from highway_rl.records.figures import colour, look, looks
from highway_rl.records.rows import Row, Rows, read_metrics, read_rows, select, write_rows, write_text

__all__ = [
    "Row",
    "Rows",
    "colour",
    "draw",
    "look",
    "looks",
    "read_metrics",
    "read_rows",
    "select",
    "write_rows",
    "write_text",
]
