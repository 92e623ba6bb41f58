// Not built: its custom resource definitions are what the objects of docs/working-with.md are judged by.
module gpushare/e2e/custom-resources

go 1.26.0

require (
	github.com/argoproj/argo-workflows/v4 v4.0.5
	github.com/kserve/kserve v0.15.2
	github.com/kubeflow/trainer/v2 v2.2.0
	github.com/kubeflow/training-operator v1.9.3
	github.com/ray-project/kuberay/ray-operator v1.6.0
	sigs.k8s.io/kueue v0.17.0
)
