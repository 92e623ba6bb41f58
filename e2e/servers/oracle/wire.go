package main

import "encoding/json"

// About is the first line of the output. Gates: those of the scheduler that are not as the release has them by default.
type About struct {
	Kubernetes string          `json:"kubernetes"`
	Go         string          `json:"go"`
	Disabled   []string        `json:"disabledPlugins"`
	Gates      map[string]bool `json:"featureGates"`
}

// Scenario is a cluster and the pods asked about, each alone. Objects and probes are manifests; uid, creationTimestamp,
// deletionTimestamp and status count as written. PostFilter: also say what preemption would do for a probe that fits nowhere.
type Scenario struct {
	Name       string            `json:"name"`
	Objects    []json.RawMessage `json:"objects"`
	Probes     []json.RawMessage `json:"probes"`
	PostFilter bool              `json:"postFilter,omitempty"`
}

// ScenarioAnswer has the objects as the API server would store them, and one answer for each probe.
type ScenarioAnswer struct {
	Name    string            `json:"name"`
	Objects []json.RawMessage `json:"objects"`
	Answers []Answer          `json:"answers"`
}

// Answer is about one probe. Invalid: what the API server says of it; then there is nothing else.
//
// Message: the error of the attempt, as in the condition PodScheduled but without PostFilter's part. PreFilter: what
// rejects the pod on every node. Rejected: node -> what rejects it. Scores: plugin -> what it says of the feasible nodes.
type Answer struct {
	Invalid    string             `json:"invalid,omitempty"`
	Stored     json.RawMessage    `json:"stored,omitempty"`
	Message    string             `json:"message,omitempty"`
	PreFilter  *Verdict           `json:"preFilter,omitempty"`
	Rejected   map[string]Verdict `json:"rejected,omitempty"`
	Feasible   []string           `json:"feasible,omitempty"`
	Scores     map[string]Scores  `json:"scores,omitempty"`
	Preemption *Preemption        `json:"preemption,omitempty"`
}

// Verdict is the status of the first plugin that rejects. Plugin: "" for a node that PreFilter has left out.
type Verdict struct {
	Plugin  string   `json:"plugin"`
	Code    string   `json:"code"`
	Reasons []string `json:"reasons"`
}

// Scores of one plugin, by node. Weighted is Normalized times the plugin's weight.
type Scores struct {
	Raw        map[string]int64 `json:"raw"`
	Normalized map[string]int64 `json:"normalized"`
	Weighted   map[string]int64 `json:"weighted"`
}

// Preemption is the dry run for a probe that fits nowhere. NotEligible: why it may not preempt anybody. Candidates:
// every node where evicting helps. Chosen: one with the best key; which of those that tie is chance. Message: why there is
// no candidate.
type Preemption struct {
	NotEligible string               `json:"notEligible,omitempty"`
	Candidates  map[string]Candidate `json:"candidates,omitempty"`
	Chosen      string               `json:"chosen,omitempty"`
	Message     string               `json:"message,omitempty"`
}

// Candidate is one node. Victims: namespace/name, as DefaultPreemption orders them. Violations: of disruption budgets.
type Candidate struct {
	Victims    []string `json:"victims"`
	Violations int64    `json:"violations"`
}
