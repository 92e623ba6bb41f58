"""Takes what the plugin has put on its node away: `gpushare-device-plugin uninstall`. docs/node.md, "Uninstall".

    look ──▶ Installed ──▶ plan (pure) ──▶ hands        what is there ──▶ what goes, and what stays ──▶ removed

Only `cli` knows it.
"""
