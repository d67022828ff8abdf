"""Pure decisions: no database, no HTTP, no Authlib, no reading of the clock."""
