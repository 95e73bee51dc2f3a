// SPDX-License-Identifier: Apache-2.0

package hollownode

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxLoggedRequests is the maximum number of requests in the log of a Pod. Only the latest requests are kept.
	maxLoggedRequests = 100
	// maxLoggedPath limits the length of a request's path in the log, in bytes.
	maxLoggedPath = 200
	// logTimeFormat is the kubelet's time format.
	logTimeFormat = "2006-01-02T15:04:05.000000000Z07:00"
)

type logLine struct {
	at   time.Time
	text string
}

// requestLine returns the log line of a request to a Pod. It omits the query, which may contain credentials.
func requestLine(at time.Time, r *http.Request) logLine {
	path := r.URL.EscapedPath()
	return logLine{at, fmt.Sprintf("%s %s %d", r.Method, path[:min(len(path), maxLoggedPath)], http.StatusOK)}
}

// serveLogs serves the log of a container to the API server, as a kubelet does. A request to follow the log ends
// immediately.
func (p *podRunner) serveLogs(w http.ResponseWriter, r *http.Request) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	obj, isKnown, err := p.pods.GetStore().GetByKey(namespace + "/" + name)
	pod, isPod := obj.(*corev1.Pod)
	if err != nil || !isKnown || !isPod {
		http.Error(w, fmt.Sprintf("pod %q not found in namespace %q", name, namespace), http.StatusNotFound)
		return
	}
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == container })
	if i < 0 || r.URL.Query().Get("previous") == "true" {
		// The containers of a hollow node are never restarted, so there is no previous log.
		http.Error(w, fmt.Sprintf("no log of container %q in pod %q", container, name), http.StatusBadRequest)
		return
	}
	lines := containerLines(&pod.Status.ContainerStatuses[i], pod.Status.Conditions)
	if p.network != nil {
		lines = append(lines, p.network.listRequests(pod.UID)...)
	}
	_, _ = w.Write(selectLines(lines, r.URL.Query())) // A client that has disconnected needs no response.
}

// containerLines returns the lines that a container's status implies.
func containerLines(s *corev1.ContainerStatus, conditions []corev1.PodCondition) []logLine {
	var lines []logLine
	if running := s.State.Running; running != nil {
		lines = append(lines, logLine{running.StartedAt.Time, fmt.Sprintf("hollow container %s started with image %s; no process runs", s.Name, s.Image)})
	}
	if ended := s.LastTerminationState.Terminated; ended != nil {
		lines = append(lines, logLine{ended.FinishedAt.Time, ended.Message})
	}
	for _, c := range conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			lines = append(lines, logLine{c.LastTransitionTime.Time, "ready"})
		}
	}
	return lines
}

// selectLines applies the options of a request as the kubelet does; it ignores invalid options.
func selectLines(lines []logLine, options url.Values) []byte {
	slices.SortStableFunc(lines, func(a, b logLine) int { return a.at.Compare(b.at) })
	if since, err := time.Parse(time.RFC3339, options.Get("sinceTime")); err == nil {
		lines = slices.DeleteFunc(lines, func(l logLine) bool { return l.at.Before(since) })
	}
	if tail, err := strconv.Atoi(options.Get("tailLines")); err == nil {
		lines = lines[max(0, len(lines)-max(tail, 0)):]
	}
	var text []byte
	for _, l := range lines {
		if options.Get("timestamps") == "true" {
			text = l.at.UTC().AppendFormat(text, logTimeFormat)
			text = append(text, ' ')
		}
		text = append(append(text, l.text...), '\n')
	}
	if limit, err := strconv.Atoi(options.Get("limitBytes")); err == nil {
		text = text[:min(len(text), max(limit, 0))]
	}
	return text
}
