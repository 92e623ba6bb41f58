"""`make release`: what is published of a version, made in `dist/` from one commit, the same bytes each time.

docs/release.md has the steps around it. The image aside, nothing here takes root.
"""
