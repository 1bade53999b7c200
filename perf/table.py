"""Results, a row at a time: one definition of the columns for the text table, for JSON and for the help."""
from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass

from tqdm import tqdm

from .measure import Spread


@dataclass(frozen=True)
class Column:
    """key: its name, in JSON too; unit and form (a format spec) are the text table's; a Spread adds key_min and key_max."""

    key: str
    unit: str
    form: str
    doc: str
    spread: bool = False

    @property
    def digits(self):
        return int(self.form.strip("<dfes").partition(".")[0])

    @property
    def width(self):
        return max(len(self.key), self.digits + (2 * self.digits + 2) * self.spread)

    def text(self, value) -> str:
        if value is None:
            return "-"
        if isinstance(value, Spread):
            form = self.form[self.form.index(".") :]
            return f"{value.median:{self.form}} {f'{value.low:{form}}-{value.high:{form}}':>{2 * self.digits + 1}}"
        return f"{value:{self.form}}".strip()

    def align(self, text):
        return text.ljust(self.width) if self.form.startswith("<") else text.rjust(self.width)

    def items(self, value):
        if self.spread:
            value = value or Spread(None, None, None)
            return {self.key: value.median, f"{self.key}_min": value.low, f"{self.key}_max": value.high}
        return {self.key: value}


class Table:
    """Prints rows as they come, or collects them and prints one JSON list; silent unless `shown` (on rank 0)."""

    def __init__(self, columns, as_json=False, shown=True):
        self.columns, self.as_json, self.shown, self.rows = columns, as_json, shown, []

    def note(self, text=""):
        """A line of the text table that is no row."""
        if not self.as_json:
            self._print(f"# {text}".rstrip())

    def head(self):
        self.note(" ".join(c.align(c.key + " min-max" * c.spread) for c in self.columns))
        self.note(" ".join(c.align(f"({c.unit})" if c.unit else "") for c in self.columns))

    def row(self, **cells):
        self.rows.append(cells)
        if not self.as_json:
            self._print("  " + " ".join(c.align(c.text(cells[c.key])) for c in self.columns))

    def end(self):
        if self.as_json:
            rows = [{key: _plain(v) for c in self.columns for key, v in c.items(row[c.key]).items()} for row in self.rows]
            self._print(json.dumps(rows, indent=1))

    def _print(self, line):
        if self.shown:
            # tqdm's write keeps a progress bar below the rows, where there is a terminal to show one.
            (tqdm.write if sys.stderr.isatty() else print)(line, file=sys.stdout)
            sys.stdout.flush()


def describe(columns) -> str:
    """The columns, for the help."""
    return "\n".join(f"  {c.key:10} {c.doc}" + (f" ({c.unit})" if c.unit else "") for c in columns)


def _plain(value):
    return None if isinstance(value, float) and not math.isfinite(value) else value
