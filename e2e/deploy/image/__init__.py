"""The image and the other files of a release: built, opened and run."""
