module gpushare/e2e/helm

go 1.26.0

tool helm.sh/helm/v4/cmd/helm

require helm.sh/helm/v4 v4.3.1
