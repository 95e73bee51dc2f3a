// SPDX-License-Identifier: Apache-2.0

package hollownode

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// These variables set the behaviour of a pod's hollow containers, as environment variables or before the command, as
// in HOLLOW_START=1s ./app.
const (
	startWord = "HOLLOW_START"
	stopWord  = "HOLLOW_STOP"
	crashWord = "HOLLOW_CRASH"
)

// podBehaviour is the behaviour of a pod's containers. With the zero value, containers become ready immediately, and
// end immediately after a deletion.
type podBehaviour struct {
	// start is the time from the start of a pod until it is ready; delay is the time from its deletion to SIGTERM,
	// and stop the time from SIGTERM to its end.
	start, delay, stop time.Duration
	// crash is the message of a container that crashes instead of becoming ready; empty for other containers.
	crash string
}

func readBehaviour(pod *corev1.Pod) podBehaviour {
	words := map[string]string{}
	var delay time.Duration
	for _, c := range pod.Spec.Containers {
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil {
			delay = max(delay, time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second)
		}
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
	return podBehaviour{start: parseDuration(words[startWord]), delay: delay, stop: parseDuration(words[stopWord]), crash: words[crashWord]}
}

// parseDuration returns zero for an invalid text, instead of an error.
func parseDuration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return d
}

// retryLimit is how long a request about a pod is retried.
const retryLimit = 30 * time.Second

type podRunner struct {
	client kubernetes.Interface
	config Config
	// pods are the pods that are bound to this node.
	pods cache.SharedIndexInformer
	// network is nil if pods cannot be reached. Pods then end without the delay before SIGTERM, because only clients
	// need it.
	network *podNetwork

	mu sync.Mutex
	// waiting contains the pods with a running timer.
	waiting map[types.UID]bool
}

func newPodRunner(client kubernetes.Interface, c Config) *podRunner {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", c.Name).String()
	}))
	p := &podRunner{client: client, config: c, pods: factory.Core().V1().Pods().Informer(), waiting: map[types.UID]bool{}}
	if c.PodNetwork != "" {
		p.network = &podNetwork{folder: c.PodNetwork, pods: map[types.UID]*podServer{}}
	}
	return p
}

// run reports every pod bound to this node as running, and ends deleted pods, after the delays that are set in the
// pods.
func (p *podRunner) run(ctx context.Context) {
	act := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			p.handlePod(ctx, pod)
		}
	}
	_, err := p.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: act, UpdateFunc: func(_, obj any) { act(obj) }})
	if err != nil {
		return
	}
	p.pods.RunWithContext(ctx)
}

// handlePod performs the next step of a pod. The resulting change to the pod triggers the next call.
func (p *podRunner) handlePod(ctx context.Context, pod *corev1.Pod) {
	b := readBehaviour(pod)
	switch {
	case pod.DeletionTimestamp != nil:
		p.runOnceAfter(ctx, pod, p.endDelay(b), p.deletePod)
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		p.runOnceAfter(ctx, pod, 0, func(ctx context.Context, pod *corev1.Pod) {
			p.runPod(ctx, pod, b.start == 0, b.crash)
		})
	case !isPodReady(pod) && b.crash == "":
		p.runOnceAfter(ctx, pod, b.start, func(ctx context.Context, pod *corev1.Pod) {
			p.runPod(ctx, pod, true, "")
		})
	}
}

// runOnceAfter calls a function for a pod after a delay, without delaying other pods. A pod has only one timer at a
// time, but a pod that is deleted during its start gets a second timer.
func (p *podRunner) runOnceAfter(ctx context.Context, pod *corev1.Pod, delay time.Duration, do func(context.Context, *corev1.Pod)) {
	key := pod.UID
	if pod.DeletionTimestamp != nil {
		key += "/ends"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting[key] {
		return
	}
	p.waiting[key] = true
	time.AfterFunc(delay, func() {
		p.mu.Lock()
		delete(p.waiting, key)
		p.mu.Unlock()
		do(ctx, pod)
	})
}

func (p *podRunner) endDelay(b podBehaviour) time.Duration {
	if p.network == nil {
		return b.stop
	}
	return b.delay + b.stop
}

// runPod reports that a pod runs. The servers of the pod answer before the pod is reported as ready.
func (p *podRunner) runPod(ctx context.Context, pod *corev1.Pod, isReady bool, crash string) {
	address := p.config.Address
	if p.network != nil {
		var err error
		address, err = p.network.addressPod(pod.UID)
		if err == nil && isReady && crash == "" {
			err = p.network.servePod(ctx, pod)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Pod cannot be reached", "pod", pod.Name)
			isReady = false
		}
	}
	status := buildPodStatus(pod, isReady, crash)
	status.HostIP, status.PodIP = p.config.Address, address
	p.reportStatus(ctx, pod, status)
}

func (p *podRunner) deletePod(ctx context.Context, pod *corev1.Pod) {
	if p.network != nil {
		p.network.endPod(pod.UID)
	}
	retryRequest(ctx, func(ctx context.Context) error {
		return p.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
	})
}

func (p *podRunner) reportStatus(ctx context.Context, pod *corev1.Pod, s corev1.PodStatus) {
	after := pod.DeepCopy()
	after.Status, after.ResourceVersion = s, "" // No other client writes the status. The UID protects a new pod with the same name.
	retryRequest(ctx, func(ctx context.Context) error {
		_, err := p.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, after, metav1.UpdateOptions{})
		return err
	})
}

// retryRequest repeats a request until it succeeds, the pod does not exist, or the limit has passed. No other event
// would repeat a failed request: a report may conflict with the end of the pod, and the machine may be overloaded.
func retryRequest(ctx context.Context, send func(context.Context) error) {
	_ = wait.PollUntilContextTimeout(ctx, awaitInterval, retryLimit, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, requestLimit)
		defer cancel()
		err := send(ctx)
		return err == nil || k8serrors.IsNotFound(err), nil
	})
}

func isPodReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// buildPodStatus returns the status of a running pod. If crash is not empty, the containers crash repeatedly with this
// message.
func buildPodStatus(pod *corev1.Pod, isReady bool, crash string) corev1.PodStatus {
	now := metav1.Now()
	isReady = isReady && crash == ""
	s := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		is := corev1.ConditionTrue
		if !isReady && (kind == corev1.ContainersReady || kind == corev1.PodReady) {
			is = corev1.ConditionFalse
		}
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: is, LastTransitionTime: now})
	}
	for _, container := range pod.Spec.Containers {
		one := corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: isReady, Started: new(isReady),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		}
		if crash != "" {
			one.RestartCount = 1
			one.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off restarting failed container"}}
			one.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: crash, FinishedAt: now}
		}
		s.ContainerStatuses = append(s.ContainerStatuses, one)
	}
	return s
}
