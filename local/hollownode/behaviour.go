// SPDX-License-Identifier: Apache-2.0

package hollownode

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The words by which a pod chooses how its hollow containers behave: as an environment variable, or before the command as in
// HOLLOW_START=1s ./app.
const (
	startWord = "HOLLOW_START"
	stopWord  = "HOLLOW_STOP"
	crashWord = "HOLLOW_CRASH"
)

// podBehaviour is how the containers of a pod behave. The zero value is ready at once and gone at once.
type podBehaviour struct {
	// start is how long a pod runs before it is ready; stop is how long it takes to end.
	start, stop time.Duration
	// crash is the message of a container that ends instead of becoming ready; empty for one that does not.
	crash string
}

func readBehaviour(pod *corev1.Pod) podBehaviour {
	words := map[string]string{}
	for _, c := range pod.Spec.Containers {
		for _, text := range slices.Concat(c.Command, c.Args) {
			for word := range strings.FieldsSeq(text) {
				if name, value, ok := strings.Cut(word, "="); ok {
					words[name] = value
				}
			}
		}
		for _, e := range c.Env {
			if e.Value != "" {
				words[e.Name] = e.Value
			}
		}
	}
	return podBehaviour{start: parseDuration(words[startWord]), stop: parseDuration(words[stopWord]), crash: words[crashWord]}
}

// parseDuration is zero for what cannot be read: a hollow node is forgiving.
func parseDuration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return d
}
