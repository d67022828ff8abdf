"""Reading people from exports of other systems; one at a time, however many there are."""
