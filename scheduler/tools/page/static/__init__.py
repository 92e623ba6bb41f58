"""The page's files, as the browser gets them: HTML, CSS and ES modules, without a build step."""
