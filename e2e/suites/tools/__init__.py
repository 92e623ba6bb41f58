"""kubectl gpushare, the inspect API and the web page."""
