"""A command with many options, whose help has them under headings."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

_OTHERS = "Other options"


class Grouped(click.Command):
    """A command that is made with ``groups``: names of parameters by their headings, in order."""

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **attributes: Any):
        super().__init__(*args, **attributes)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group, and one for what is in none."""
        params = {param.name: param for param in self.get_params(ctx)}
        grouped = {name for names in self.groups.values() for name in names}
        others = [name for name in params if name not in grouped]
        for heading, names in {**self.groups, _OTHERS: others}.items():
            records = [params[name].get_help_record(ctx) for name in names]
            with formatter.section(heading):
                formatter.write_dl([record for record in records if record is not None])
