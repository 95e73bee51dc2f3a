// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
)

const (
	// shippingPace is how often the Pods that ship are asked, and with it how often a status is written.
	shippingPace = time.Minute
	// shippingTimeout, maxShippingReport and shippingCallers bound what Pods of tenants can take.
	shippingTimeout   = 3 * time.Second
	maxShippingReport = 64 << 10
	shippingCallers   = 8
)

// shippingPoller asks the Pods that ship binary logs how far they are. Passes read what was answered last.
type shippingPoller struct {
	pods    client.Reader
	http    http.Client
	changed chan event.GenericEvent
	// reports are backup.ShippingReports by the cluster's types.NamespacedName.
	reports sync.Map
}

func newShippingPoller(pods client.Reader) *shippingPoller {
	return &shippingPoller{
		pods: pods, changed: make(chan event.GenericEvent),
		http: http.Client{Timeout: shippingTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

// reportOf returns nil if nothing was answered yet.
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
	var pods corev1.PodList
	if err := p.pods.List(ctx, &pods, client.MatchingLabels{mocov1beta2.NameLabel: backup.JobKinds()[2]}); err != nil {
		return // The cache ends with the manager.
	}
	var asking sync.WaitGroup
	turns := make(chan struct{}, shippingCallers)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
			p.askPod(ctx, pod)
		})
	}
	asking.Wait()
}

func (p *shippingPoller) askPod(ctx context.Context, pod *corev1.Pod) {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[mocov1beta2.InstanceLabel]}
	report, err := p.fetchReport(ctx, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(backup.ShipperPort)))
	if err != nil {
		if old := p.reportOf(name); old != nil {
			report = *old // What was shipped is.
		}
		report.Problem = "the Pod that copies binary logs does not answer"
	}
	p.reports.Store(name, report)
	cluster := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	select {
	case p.changed <- event.GenericEvent{Object: cluster}:
	case <-ctx.Done():
	}
}

func (p *shippingPoller) fetchReport(ctx context.Context, address string) (backup.ShippingReport, error) {
	var report backup.ShippingReport
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+backup.StatusPath, http.NoBody)
	if err != nil {
		return report, fmt.Errorf("ask %s: %w", address, err)
	}
	answer, err := p.http.Do(request)
	if err != nil {
		return report, fmt.Errorf("ask %s: %w", address, err)
	}
	defer func() { _ = answer.Body.Close() }() // It was only read.
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxShippingReport)).Decode(&report); err != nil {
		return report, fmt.Errorf("read the answer of %s: %w", address, err)
	}
	return report, nil
}
