"""`python -m sso.presets FOLDER`: write the pages about applications, for the documentation.

They are not in the repository, where they would be a second copy of the data.
"""

from pathlib import Path

import click

from sso.presets import preset_pages


@click.command(help="Write a Markdown page for each application into FOLDER, and an index.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def main(folder: Path) -> None:
    preset_pages.write(folder)


if __name__ == "__main__":
    main()
