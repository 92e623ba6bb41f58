"""The web page and the documents as a site, in a real browser."""
