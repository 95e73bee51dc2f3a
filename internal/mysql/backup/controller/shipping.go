// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
)

const (
	// shippingPace is the interval at which the Pods that ship binary logs are polled. It also limits how often their
	// reports change the status of a cluster.
	shippingPace = time.Minute
	// absenceGrace is how long a Deployment may have no running Pod before this is reported. A Pod that replaces
	// another one needs this time to start.
	absenceGrace = 2 * shippingPace
	// shippingTimeout, maxShippingReport and shippingCallers limit the resources of the manager that Pods in users'
	// namespaces can consume.
	shippingTimeout   = 3 * time.Second
	maxShippingReport = 64 << 10
	shippingCallers   = 8
)

// shippingPoller polls the Pods that ship binary logs for their progress. Reconciliations read the last response.
type shippingPoller struct {
	objects client.Reader
	clock   clock.PassiveClock
	http    http.Client
	changed chan event.GenericEvent
	// reports holds backup.ShippingReports, keyed by the types.NamespacedName of the cluster.
	reports sync.Map
	// absentSince holds, by cluster, the time since which the Deployment has had no running Pod.
	absentSince map[types.NamespacedName]time.Time
}

func newShippingPoller(objects client.Reader, clock clock.PassiveClock) *shippingPoller {
	return &shippingPoller{
		objects: objects, clock: clock, changed: make(chan event.GenericEvent),
		http: http.Client{Timeout: shippingTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

// reportOf returns the last report, or nil if the Pod has not responded yet.
func (p *shippingPoller) reportOf(cluster types.NamespacedName) *backup.ShippingReport {
	if found, ok := p.reports.Load(cluster); ok {
		return new(found.(backup.ShippingReport))
	}
	return nil
}

func (p *shippingPoller) forgetCluster(cluster types.NamespacedName) { p.reports.Delete(cluster) }

// Start implements manager.Runnable.
func (p *shippingPoller) Start(ctx context.Context) error {
	defer p.http.CloseIdleConnections()
	tick := time.NewTicker(shippingPace)
	defer tick.Stop()
	for {
		p.askAll(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *shippingPoller) askAll(ctx context.Context) {
	ofShippers := client.MatchingLabels{mocov1beta2.NameLabel: backup.ShipperKind}
	var shippers appsv1.DeploymentList
	var pods corev1.PodList
	if p.objects.List(ctx, &shippers, ofShippers) != nil || p.objects.List(ctx, &pods, ofShippers) != nil {
		return // Listing fails only when the cache stops with the manager.
	}
	running := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !canAnswer(&pod) })
	p.askPods(ctx, running)
	p.absentSince = updateAbsences(p.absentSince, shippers.Items, running, p.clock.Now())
	for shipped, since := range p.absentSince {
		if p.clock.Since(since) >= absenceGrace {
			p.reportAbsence(ctx, shipped)
		}
	}
}

func canAnswer(pod *corev1.Pod) bool {
	return pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
}

// clusterOf returns the cluster whose binary logs a Pod or a Deployment ships.
func clusterOf(obj client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetLabels()[mocov1beta2.InstanceLabel]}
}

// updateAbsences returns the clusters whose Deployment should have a running Pod but has none, with the time since
// which no Pod has been running.
func updateAbsences(before map[types.NamespacedName]time.Time, shippers []appsv1.Deployment, running []corev1.Pod, now time.Time) map[types.NamespacedName]time.Time {
	absent, isRunning := map[types.NamespacedName]time.Time{}, map[types.NamespacedName]bool{}
	for i := range running {
		isRunning[clusterOf(&running[i])] = true
	}
	for i := range shippers {
		cluster := clusterOf(&shippers[i])
		if isAsleep(&shippers[i]) || shippers[i].DeletionTimestamp != nil || isRunning[cluster] {
			continue
		}
		absent[cluster] = now
		if since, wasAbsent := before[cluster]; wasAbsent {
			absent[cluster] = since
		}
	}
	return absent
}

// isAsleep reports whether a Deployment is scaled to zero.
func isAsleep(shipper *appsv1.Deployment) bool {
	return shipper.Spec.Replicas != nil && *shipper.Spec.Replicas == 0
}

func (p *shippingPoller) askPods(ctx context.Context, pods []corev1.Pod) {
	var asking sync.WaitGroup
	turns := make(chan struct{}, shippingCallers)
	for i := range pods {
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
			p.askPod(ctx, &pods[i])
		})
	}
	asking.Wait()
}

func (p *shippingPoller) askPod(ctx context.Context, pod *corev1.Pod) {
	cluster := clusterOf(pod)
	report, err := p.fetchReport(ctx, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(backup.ShipperPort)))
	if err != nil {
		report = p.lastReport(cluster)
		report.Problem = "the Pod that copies binary logs does not answer"
	}
	p.storeReport(ctx, cluster, report)
}

// reportAbsence reports that no Pod runs. It changes nothing if that is already reported, so the status is not written
// every minute.
func (p *shippingPoller) reportAbsence(ctx context.Context, cluster types.NamespacedName) {
	before := p.lastReport(cluster)
	after := before
	after.Problem = fmt.Sprintf("no Pod of Deployment %s is running, so no binary logs are copied; check its Pods and events", backup.ShipperName(cluster.Name))
	if after != before {
		p.storeReport(ctx, cluster, after)
	}
}

// lastReport returns the last report, whose data about shipped binary logs is still valid, or an empty report if the
// Pod has not responded yet.
func (p *shippingPoller) lastReport(cluster types.NamespacedName) backup.ShippingReport {
	if last := p.reportOf(cluster); last != nil {
		return *last
	}
	return backup.ShippingReport{}
}

func (p *shippingPoller) storeReport(ctx context.Context, of types.NamespacedName, report backup.ShippingReport) {
	p.reports.Store(of, report)
	cluster := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name}}
	select {
	case p.changed <- event.GenericEvent{Object: cluster}:
	case <-ctx.Done():
	}
}

func (p *shippingPoller) fetchReport(ctx context.Context, address string) (backup.ShippingReport, error) {
	var report backup.ShippingReport
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+backup.StatusPath, http.NoBody)
	if err != nil {
		return report, fmt.Errorf("request the status from %s: %w", address, err)
	}
	answer, err := p.http.Do(request)
	if err != nil {
		return report, fmt.Errorf("request the status from %s: %w", address, err)
	}
	defer func() { _ = answer.Body.Close() }() // The response was only read.
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxShippingReport)).Decode(&report); err != nil {
		return report, fmt.Errorf("decode the response of %s: %w", address, err)
	}
	return report, nil
}
