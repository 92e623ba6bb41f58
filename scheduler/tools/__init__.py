"""Commands and the web page: clients of the core, which never imports them."""
