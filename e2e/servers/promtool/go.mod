module gpushare/e2e/promtool

go 1.26.0
