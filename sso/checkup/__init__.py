"""What is wrong with this installation; for doctor and admin pages."""
