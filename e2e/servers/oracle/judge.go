package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func answerOne(configuration *config.KubeSchedulerConfiguration, scenario Scenario) (ScenarioAnswer, error) {
	answer := ScenarioAnswer{Name: scenario.Name, Answers: []Answer{}, Objects: []json.RawMessage{}}
	objects := make([]runtime.Object, 0, len(scenario.Objects))
	for _, raw := range scenario.Objects {
		object, stored, err := admitted(raw)
		if err != nil {
			return answer, err
		}
		if !finished(object) {
			objects = append(objects, object)
		}
		answer.Objects = append(answer.Objects, stored)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	found, err := newCluster(ctx, configuration, objects)
	if err != nil {
		return answer, err
	}
	for _, raw := range scenario.Probes {
		one, err := found.probe(ctx, raw, scenario.PostFilter)
		if err != nil {
			return answer, err
		}
		answer.Answers = append(answer.Answers, one)
	}
	return answer, nil
}

// finished is what kube-scheduler leaves to the API server, by the field selector of its pods: the fake one knows none.
// Source: pkg/scheduler/scheduler.go, newPodInformer.
func finished(object runtime.Object) bool {
	pod, is := object.(*v1.Pod)
	return is && (pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed)
}

func (c *cluster) probe(ctx context.Context, raw []byte, postFilter bool) (Answer, error) {
	object, stored, err := admitted(raw)
	var refused Refused
	if errors.As(err, &refused) {
		return Answer{Invalid: err.Error()}, nil
	}
	if err != nil {
		return Answer{}, err
	}
	pod, is := object.(*v1.Pod)
	if !is {
		return Answer{}, fmt.Errorf("a probe is a %T", object)
	}
	answer, err := c.judge(ctx, pod, postFilter)
	answer.Stored = stored
	return answer, err
}

func (c *cluster) judge(ctx context.Context, pod *v1.Pod, postFilter bool) (Answer, error) {
	answer := Answer{Rejected: map[string]Verdict{}}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return answer, err
	}
	if _, err := c.sched.SchedulePod(ctx, c.framework, framework.NewCycleState(), &framework.QueuedPodInfo{PodInfo: info}); err != nil {
		answer.Message = err.Error()
	}
	nodes, err := c.snapshot.NodeInfos().List()
	if err != nil || len(nodes) == 0 {
		return answer, err
	}
	state, statuses := framework.NewCycleState(), framework.NewDefaultNodeToStatus()
	feasible, ok := c.filter(ctx, state, pod, nodes, statuses, &answer)
	if len(feasible) > 0 {
		return answer, c.score(ctx, state, pod, feasible, &answer)
	}
	if ok && postFilter {
		answer.Preemption, err = c.preempt(ctx, state, pod, statuses)
	}
	return answer, err
}

// filter says of each node what rejects it; false where the attempt ends with an error, and there is no PostFilter.
func (c *cluster) filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo, statuses *framework.NodeToStatus, answer *Answer) ([]fwk.NodeInfo, bool) {
	result, status, _ := c.framework.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		verdict := verdictOf(status)
		answer.PreFilter = &verdict
		statuses.SetAbsentNodesStatus(status)
		return nil, status.IsRejected()
	}
	feasible := []fwk.NodeInfo{}
	for _, node := range nodes {
		name := node.Node().Name
		if !result.AllNodes() && !result.NodeNames.Has(name) {
			answer.Rejected[name] = Verdict{Code: fwk.UnschedulableAndUnresolvable.String()}
			continue
		}
		if status := c.framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node); !status.IsSuccess() {
			answer.Rejected[name] = verdictOf(status)
			statuses.Set(name, status)
			continue
		}
		feasible = append(feasible, node)
		answer.Feasible = append(answer.Feasible, name)
	}
	sort.Strings(answer.Feasible)
	return feasible, true
}

func (c *cluster) score(ctx context.Context, state fwk.CycleState, pod *v1.Pod, feasible []fwk.NodeInfo, answer *Answer) error {
	if status := c.framework.RunPreScorePlugins(ctx, state, pod, feasible); !status.IsSuccess() {
		answer.Message = status.AsError().Error()
		return nil
	}
	weighted, status := c.framework.RunScorePlugins(ctx, state, pod, feasible)
	if !status.IsSuccess() {
		answer.Message = status.AsError().Error()
		return nil
	}
	answer.Scores = map[string]Scores{}
	weights := c.weights()
	for _, node := range weighted {
		for _, score := range node.Scores {
			if state.GetSkipScorePlugins().Has(score.Name) || c.scorers[score.Name] == nil {
				continue
			}
			if _, is := answer.Scores[score.Name]; !is {
				answer.Scores[score.Name] = Scores{map[string]int64{}, map[string]int64{}, map[string]int64{}}
			}
			answer.Scores[score.Name].Weighted[node.Name] = score.Score
			answer.Scores[score.Name].Normalized[node.Name] = score.Score / weights[score.Name]
		}
	}
	return c.addRaw(ctx, state, pod, feasible, answer)
}

func (c *cluster) addRaw(ctx context.Context, state fwk.CycleState, pod *v1.Pod, feasible []fwk.NodeInfo, answer *Answer) error {
	for name, scores := range answer.Scores {
		for _, node := range feasible {
			raw, status := c.scorers[name].Score(ctx, state, pod, node)
			if !status.IsSuccess() {
				return status.AsError()
			}
			scores.Raw[node.Node().Name] = raw
		}
	}
	return nil
}

func (c *cluster) weights() map[string]int64 {
	found := map[string]int64{}
	for _, plugin := range c.framework.ListPlugins().Score.Enabled {
		found[plugin.Name] = int64(plugin.Weight)
	}
	return found
}

// verdictOf sorts the reasons: scalar resources come in the order of a map, and the message sorts them too.
func verdictOf(status *fwk.Status) Verdict {
	reasons := append([]string{}, status.Reasons()...)
	sort.Strings(reasons)
	return Verdict{Plugin: status.Plugin(), Code: status.Code().String(), Reasons: reasons}
}
