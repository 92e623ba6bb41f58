// The oracle of the differential test: what kube-scheduler itself says of a pod on a cluster.
//
// Reads one scenario per line from standard input and writes one answer per line to standard output, both JSON; `wire.go`
// has their fields. The first line of the output says which Kubernetes answers. Every object and every probe goes through
// the API server's own defaulting, preparation and validation first (`admit.go`); a probe that the API server refuses has
// its words as the answer. Each probe is asked about alone: nothing is bound. Test-only: nothing of the product calls it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"k8s.io/klog/v2"
)

const longestLine = 1 << 28

func main() {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	if err := answerAll(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

func answerAll(from io.Reader, to io.Writer) error {
	in := bufio.NewScanner(from)
	in.Buffer(make([]byte, 1<<20), longestLine)
	out := json.NewEncoder(to)
	out.SetEscapeHTML(false)
	configuration, err := configuration()
	if err != nil {
		return err
	}
	if err := out.Encode(about(configuration)); err != nil {
		return err
	}
	for in.Scan() {
		var scenario Scenario
		if err := json.Unmarshal(in.Bytes(), &scenario); err != nil {
			return err
		}
		answer, err := answerOne(configuration, scenario)
		if err != nil {
			return fmt.Errorf("scenario %s: %w", scenario.Name, err)
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return in.Err()
}
