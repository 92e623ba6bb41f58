"""Takes what the plugin has put on its node away: `gpushare-device-plugin uninstall`. docs/node.md, "Uninstall".

    look ──▶ Facts ──▶ plan (pure) ──▶ hands        what is there ──▶ what goes, what stays and why ──▶ it is removed

Only `cli` knows it.
"""
