"""`gpushare-device-plugin uninstall`: removes what the plugin has put on its node. docs/node-reference.md, "Uninstall".

    look ──▶ items: to remove, or to keep and why ──▶ remove ──again, until nothing waits──▶ lock, state directory

Only `cli` imports it.
"""
