"""`make release`: everything that is published of a version, from one commit; docs/develop/release.md has the steps."""
