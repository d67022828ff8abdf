"""What is wrong with this installation, as its database shows; for doctor and admin pages."""
