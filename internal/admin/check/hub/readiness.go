// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// probesPort is the name of the port on which the manager serves its readiness checks.
	probesPort = "probes"
	// readinessTimeout and maxReadinessBytes limit each response of a Pod, and maxReasons the number of checks whose
	// reasons are read.
	readinessTimeout  = 3 * time.Second
	maxReadinessBytes = 4 << 10
	maxReasons        = 3
)

// readReadiness reads from a Pod of the manager, through the API server's proxy, why it is not ready. It returns an
// empty string if the Pod does not answer or the caller may not use the proxy.
func readReadiness(ctx context.Context, kube kubernetes.Interface, pod *corev1.Pod) string {
	var reasons []string
	for line := range strings.Lines(askPod(ctx, kube, pod, "/readyz")) {
		name, isFailed := strings.CutPrefix(line, "[-]")
		name, _, hasName := strings.Cut(name, " ")
		if !isFailed || !hasName || len(reasons) == maxReasons {
			continue
		}
		reason := strings.TrimPrefix(askPod(ctx, kube, pod, "/readyz/"+name), "internal server error: ")
		reasons = append(reasons, strings.TrimSpace("the readiness check "+name+" fails: "+strings.Join(strings.Fields(reason), " ")))
	}
	return strings.Join(reasons, "; ")
}

// askPod returns the body of a Pod's response to a GET request to its probes port, regardless of the HTTP status, or ""
// after an error or the status 403.
func askPod(ctx context.Context, kube kubernetes.Interface, pod *corev1.Pod, path string) string {
	port := findPort(pod, probesPort)
	api, isREST := kube.CoreV1().RESTClient().(*rest.RESTClient)
	if port == 0 || !isREST {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, readinessTimeout)
	defer cancel()
	address := api.Get().Namespace(pod.Namespace).Resource("pods").Name("http:" + pod.Name + ":" + strconv.Itoa(int(port))).SubResource("proxy").Suffix(path).URL()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return ""
	}
	answer, err := api.Client.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxReadinessBytes))
	if err != nil || answer.StatusCode == http.StatusForbidden {
		return ""
	}
	return string(body)
}

// findPort returns the number of the container port with a name, or 0 if none exists.
func findPort(pod *corev1.Pod, name string) int32 {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == name {
				return p.ContainerPort
			}
		}
	}
	return 0
}
