package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// preempt is DefaultPreemption's dry run: as Evaluator.Preempt, up to the choice and without any request.
func (c *cluster) preempt(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses *framework.NodeToStatus) (*Preemption, error) {
	evaluator := c.preempter.Evaluator
	eligible, why := c.preempter.PodEligibleToPreemptOthers(ctx, pod, statuses.Get(pod.Status.NominatedNodeName))
	if !eligible {
		return &Preemption{NotEligible: why}, nil
	}
	helped, err := statuses.NodesForStatusCode(c.snapshot.NodeInfos(), fwk.Unschedulable)
	answer := &Preemption{Candidates: map[string]Candidate{}}
	if err != nil || len(helped) == 0 {
		return answer, err
	}
	budgets, err := evaluator.PdbLister.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	// Every candidate, and in the order of the nodes: kube-scheduler starts at a random one.
	candidates, _, err := evaluator.DryRunPreemption(ctx, state, pod, helped, budgets, 0, int32(len(helped)+1))
	if err != nil {
		return nil, err
	}
	for _, candidate := range candidates {
		found := Candidate{Victims: []string{}, Violations: candidate.Victims().NumPDBViolations}
		for _, victim := range candidate.Victims().Pods {
			found.Victims = append(found.Victims, victim.Namespace+"/"+victim.Name)
		}
		answer.Candidates[candidate.Name()] = found
	}
	if len(candidates) > 0 {
		answer.Chosen = evaluator.SelectCandidate(ctx, candidates).Name()
	}
	return answer, nil
}
