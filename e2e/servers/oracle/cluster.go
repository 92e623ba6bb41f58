package main

import (
	"context"
	"fmt"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Pods with resource claims are not asked about.
var disabled = []string{names.DynamicResources}

// Raw scores are asked of instances of our own: the framework tells weighted ones only.
var scorers = []string{
	names.TaintToleration, names.NodeAffinity, names.NodeResourcesFit, names.PodTopologySpread,
	names.InterPodAffinity, names.NodeResourcesBalancedAllocation, names.ImageLocality, names.VolumeBinding,
}

// configuration is kube-scheduler's default, without the disabled plugins, scoring every node.
func configuration() (*config.KubeSchedulerConfiguration, error) {
	found, err := latest.Default()
	if err != nil {
		return nil, err
	}
	for _, name := range disabled {
		multi := &found.Profiles[0].Plugins.MultiPoint
		kept := multi.Enabled[:0]
		for _, plugin := range multi.Enabled {
			if plugin.Name != name {
				kept = append(kept, plugin)
			}
		}
		multi.Enabled = kept
	}
	return found, nil
}

func about(_ *config.KubeSchedulerConfiguration) About {
	answer := About{Disabled: disabled, Gates: map[string]bool{}}
	for gate, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if enabled := utilfeature.DefaultFeatureGate.Enabled(gate); enabled != spec.Default {
			answer.Gates[string(gate)] = enabled
		}
	}
	if build, is := debug.ReadBuildInfo(); is {
		answer.Go = build.GoVersion
		for _, dependency := range build.Deps {
			if dependency.Path == "k8s.io/kubernetes" {
				answer.Kubernetes = dependency.Version
			}
		}
	}
	return answer
}

// cluster is a scheduler that has seen every object of a scenario.
type cluster struct {
	sched     *scheduler.Scheduler
	framework framework.Framework
	snapshot  *internalcache.Snapshot
	scorers   map[string]fwk.ScorePlugin
	preempter *defaultpreemption.DefaultPreemption
}

func newCluster(ctx context.Context, configuration *config.KubeSchedulerConfiguration, objects []runtime.Object) (*cluster, error) {
	client := fake.NewClientset(objects...)
	factory := scheduler.NewInformerFactory(client, 0, nil)
	all := int32(100)
	sched, err := scheduler.New(ctx, client, factory, nil,
		func(string) events.EventRecorderLogger { return events.NewFakeRecorder(1) },
		scheduler.WithProfiles(configuration.Profiles...),
		scheduler.WithParallelism(1), scheduler.WithPercentageOfNodesToScore(&all))
	if err != nil {
		return nil, err
	}
	made := &cluster{sched: sched, framework: sched.Profiles["default-scheduler"]}
	if err := made.makePlugins(ctx, configuration.Profiles[0]); err != nil {
		return nil, err
	}
	seen, err := claimHandlers(factory)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		return nil, err
	}
	cache.WaitForCacheSync(ctx.Done(), seen...)
	snapshot, is := made.framework.SnapshotSharedLister().(*internalcache.Snapshot)
	if !is {
		return nil, fmt.Errorf("the snapshot is a %T", made.framework.SnapshotSharedLister())
	}
	made.snapshot = snapshot
	return made, sched.Cache.UpdateSnapshot(klog.FromContext(ctx), snapshot)
}

// claimHandlers are handlers behind those of VolumeBinding, which does not tell when it has seen all claims and volumes.
func claimHandlers(factory informers.SharedInformerFactory) ([]cache.InformerSynced, error) {
	claims, err := factory.Core().V1().PersistentVolumeClaims().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{})
	if err != nil {
		return nil, err
	}
	volumes, err := factory.Core().V1().PersistentVolumes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{})
	if err != nil {
		return nil, err
	}
	return []cache.InformerSynced{claims.HasSynced, volumes.HasSynced}, nil
}

func (c *cluster) makePlugins(ctx context.Context, profile config.KubeSchedulerProfile) error {
	args := map[string]runtime.Object{}
	for _, one := range profile.PluginConfig {
		args[one.Name] = one.Args
	}
	registry := plugins.NewInTreeRegistry()
	c.scorers = map[string]fwk.ScorePlugin{}
	for _, name := range scorers {
		plugin, err := registry[name](ctx, args[name], c.framework)
		if err != nil {
			return err
		}
		scorer, is := plugin.(fwk.ScorePlugin)
		if !is {
			return fmt.Errorf("%s does not score", name)
		}
		c.scorers[name] = scorer
	}
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	preempter, err := defaultpreemption.New(ctx, args[defaultpreemption.Name], c.framework, features)
	c.preempter = preempter
	return err
}
