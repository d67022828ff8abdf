"""Write the texts of all presets to sso/translations/presets.pot."""

from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import write_po

from sso.presets import loader, templates

TEMPLATE = Path(__file__).resolve().parents[1] / "sso/translations/presets.pot"


def main() -> None:
    catalog = Catalog()
    for preset in loader.every():
        for text in templates.texts(preset):
            catalog.add(text)
    with TEMPLATE.open("wb") as file:
        write_po(file, catalog, omit_header=True, sort_output=True)


if __name__ == "__main__":
    main()
