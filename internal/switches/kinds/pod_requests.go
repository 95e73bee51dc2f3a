// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/torpor-dev/torpor/internal/stop/savings"
)

const (
	bytesPerKiB = 1024
	// maxRequest limits the request of one container, so that sums do not overflow.
	maxRequest = 1 << 40
)

// readPodRequests returns the requests of all replicas of an object, from its Pod template. Requests that admission
// adds, such as those of a LimitRange, are not included.
func readPodRequests(u *unstructured.Unstructured) savings.Rate {
	replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	template, _, _ := unstructured.NestedMap(u.Object, "spec", "template", "spec")
	var pod corev1.PodSpec
	if replicas <= 0 || runtime.DefaultUnstructuredConverter.FromUnstructured(template, &pod) != nil {
		return savings.Rate{}
	}
	cpu := sumRequests(&pod, corev1.ResourceCPU, func(q *resource.Quantity) int64 { return q.MilliValue() })
	memory := sumRequests(&pod, corev1.ResourceMemory, func(q *resource.Quantity) int64 {
		return int64(math.Ceil(float64(q.Value()) / bytesPerKiB))
	})
	return savings.Rate{CPUMillis: multiply(cpu, replicas), MemoryKiB: multiply(memory, replicas)}
}

// sumRequests returns the amount of a resource that the scheduler reserves for a Pod
// (https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers).
func sumRequests(pod *corev1.PodSpec, name corev1.ResourceName, value func(*resource.Quantity) int64) int64 {
	read := func(from corev1.ResourceList) int64 {
		q := from[name]
		return min(max(0, value(&q)), maxRequest)
	}
	request := func(of corev1.ResourceRequirements) int64 {
		if _, isSet := of.Requests[name]; !isSet {
			return read(of.Limits) // The API server defaults a missing request to the limit.
		}
		return read(of.Requests)
	}
	var sum, sidecars, start int64
	for i := range pod.InitContainers {
		c := &pod.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars += request(c.Resources)
			start = max(start, sidecars)
			continue
		}
		start = max(start, sidecars+request(c.Resources))
	}
	for i := range pod.Containers {
		sum += request(pod.Containers[i].Resources)
	}
	sum = max(sum+sidecars, start)
	if whole := pod.Resources; whole != nil && request(*whole) > 0 {
		sum = request(*whole)
	}
	return sum + read(pod.Overhead)
}

// multiply returns the product, or the largest int64 if it would overflow.
func multiply(request, replicas int64) int64 {
	if request > math.MaxInt64/replicas {
		return math.MaxInt64
	}
	return request * replicas
}
