"""The room's page templates: everything put into them is escaped unless marked as ready markup."""

from pathlib import Path

import jinja2

_environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(template: str, **values) -> str:
    return _environment.get_template(template).render(**values)
