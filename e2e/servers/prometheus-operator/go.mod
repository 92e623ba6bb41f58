// Not built: its custom resource definitions are what monitors are judged by.
module gpushare/e2e/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
