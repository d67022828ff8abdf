"""What all pages and endpoints share: session, errors, headers, languages, static files."""
