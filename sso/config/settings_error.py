"""What stops the start."""


class SettingsError(Exception):
    """The settings have faults; `faults` has one line for each, with the mend."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults
