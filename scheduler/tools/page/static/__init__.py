"""The page's files for the browser: HTML, CSS and ES modules, without a build step."""
