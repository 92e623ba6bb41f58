package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

const notHelpful = "Preemption is not helpful for scheduling"

// candidates are all there are, and in the order of the nodes: kube-scheduler starts at a random one.
func (c *cluster) candidates(ctx context.Context, state fwk.CycleState, pod *v1.Pod, helped []fwk.NodeInfo) ([]preemption.Candidate, *framework.NodeToStatus, error) {
	if len(helped) == 0 {
		return nil, framework.NewDefaultNodeToStatus(), nil
	}
	evaluator := c.preempter.Evaluator
	budgets, err := evaluator.PdbLister.List(labels.Everything())
	if err != nil {
		return nil, nil, err
	}
	return evaluator.DryRunPreemption(ctx, state, pod, helped, budgets, 0, int32(len(helped)+1))
}

// preempt is DefaultPreemption's dry run: as Evaluator.Preempt, up to the choice and without any request.
func (c *cluster) preempt(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses *framework.NodeToStatus) (*Preemption, error) {
	evaluator := c.preempter.Evaluator
	eligible, why := c.preempter.PodEligibleToPreemptOthers(ctx, pod, statuses.Get(pod.Status.NominatedNodeName))
	if !eligible {
		return &Preemption{NotEligible: why}, nil
	}
	helped, err := statuses.NodesForStatusCode(c.snapshot.NodeInfos(), fwk.Unschedulable)
	if err != nil {
		return nil, err
	}
	candidates, tried, err := c.candidates(ctx, state, pod, helped)
	if err != nil {
		return nil, err
	}
	answer := &Preemption{Candidates: map[string]Candidate{}}
	for _, candidate := range candidates {
		found := Candidate{Victims: []string{}, Violations: candidate.Victims().NumPDBViolations}
		for _, victim := range candidate.Victims().Pods {
			found.Victims = append(found.Victims, victim.Namespace+"/"+victim.Name)
		}
		answer.Candidates[candidate.Name()] = found
	}
	if len(candidates) > 0 {
		answer.Chosen = evaluator.SelectCandidate(ctx, candidates).Name()
		return answer, nil
	}
	nodes, err := c.snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	tried.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, notHelpful))
	fitError := &framework.FitError{Pod: pod, NumAllNodes: len(nodes), Diagnosis: framework.Diagnosis{NodeToStatus: tried}}
	answer.Message = fitError.Error()
	return answer, nil
}
