"""`make release`: everything that is published of a version, made from one commit. docs/release.md has the steps."""
