// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/torpor-dev/torpor/local/demo/runner"
	"github.com/torpor-dev/torpor/local/figures"
	"github.com/torpor-dev/torpor/local/targetcluster"
)

const (
	fleetMachines = 6
	fleetUsers    = 16
	// describeLatency and changeLatency are the usual latencies of calls to EC2.
	describeLatency = "200ms"
	changeLatency   = "400ms"
	// upstreamSeconds is the time that upstream takes to hibernate 1,000 clusters, as measured for this project's
	// reference.
	upstreamSeconds = 401
	// progressInterval is the minimum interval between progress reports about a fleet.
	progressInterval = time.Minute
)

func coreKind(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

// FleetOptions define how fleets are measured.
type FleetOptions struct {
	// Limit is the longest time in which all clusters must reach a power state.
	Limit time.Duration
	// Idle is how long all clusters hibernate before they resume; the manager's CPU time in the second half is
	// measured. Zero skips that measurement.
	Idle time.Duration
	// Pprof is the address at which the manager serves profiles; 0 serves none.
	Pprof string
	// TargetAddresses is the number of addresses, each with a separate certificate, of the clusters' API servers.
	TargetAddresses int
	// GroupedEvery selects every Nth cluster. Half of the machines of each selected cluster are members of an Auto
	// Scaling group. These groups are alternately suspended and scaled to zero. Zero creates no groups.
	GroupedEvery int
	// PooledEvery selects every Nth cluster. Each selected cluster has a MachineHealthCheck of Cluster API, which is
	// paused, and a NodePool of Karpenter. Zero selects no cluster.
	PooledEvery int
}

// FleetSize contains the number of clusters in a fleet, and the number of their accounts.
type FleetSize struct {
	Clusters, Accounts int

	// isMixed is true if some clusters have groups or pools.
	isMixed bool
}

// figureName returns the name of a figure. The name includes the number of accounts if there are several.
func (s FleetSize) figureName(name string) string {
	name = fmt.Sprintf("%s_%d", name, s.Clusters)
	if s.Accounts > 1 {
		name = fmt.Sprintf("%s_%d_accounts", name, s.Accounts)
	}
	if s.isMixed {
		name += "_mixed"
	}
	return name
}

// fleet is a hub with many clusters. The machines of the clusters run nothing, and one stub serves as the API server of
// all clusters.
type fleet struct {
	*clusterDemo

	size    FleetSize
	hub     dynamic.Interface
	kind    schema.GroupVersionResource
	target  *targetDouble
	clouds  []string
	figures figures.Figures
	// programs are the programs whose CPU time is measured, by name.
	programs map[string]*runner.Program
	options  FleetOptions
}

// RunFleet measures fleets, one after the other. After an error it returns the figures up to the error.
func RunFleet(ctx context.Context, c Config, sizes []FleetSize, options FleetOptions) (figures.Figures, error) {
	f := figures.Figures{}
	f.AddValue("machine_latency_seconds", bareLatency.Seconds())
	f.AddValue("upstream_seconds_1000", upstreamSeconds)
	for _, size := range sizes {
		size.isMixed = options.GroupedEvery > 0 || options.PooledEvery > 0
		d, err := newClusterDemo(ctx, c)
		if err != nil {
			return f, err
		}
		stage, end := context.WithCancel(ctx)
		one := &fleet{clusterDemo: d, size: size, figures: f, programs: map[string]*runner.Program{}, options: options}
		err = runner.RunSteps(d.EmptyDir, func() { one.build(stage) }, one.measure)
		end()
		if err != nil {
			err = fmt.Errorf("%w; logs are in %s", err, d.config.Dir)
		}
		if err = errors.Join(err, d.CleanUp()); err != nil {
			return f, err
		}
	}
	return f, verifyNoProcesses()
}

func (f *fleet) build(ctx context.Context) {
	f.BeginStep(fmt.Sprintf("%d clusters of %d machines in %d accounts%s", f.size.Clusters, fleetMachines, f.size.Accounts, f.describeMix()))
	hub := f.StartProgram("hub", f.config.Local, "control-plane", "--api-only", "--dir", f.config.FilePath("hub"))
	for n := range f.size.Accounts {
		name := fmt.Sprintf("cloud-%d", n)
		latency := bareLatency.String()
		cloud := f.StartProgram(name, f.config.Local, "cloud", "--dir", f.config.FilePath(name), "--ec2-limits", "--start-latency", latency, "--stop-latency", latency)
		f.clouds = append(f.clouds, f.AwaitLogLine(cloud, "ready:"))
		f.programs[name] = cloud
	}
	f.AwaitLogLine(hub, "ready ")
	f.programs["hub"] = hub
	f.kubectl("apply", "--server-side", "-k", f.config.CRDs)
	cfg, err := clientcmd.BuildConfigFromFlags("", f.config.hubKubeconfig())
	runner.ExpectNoError(err)
	cfg.QPS = -1
	f.hub, err = dynamic.NewForConfig(cfg)
	runner.ExpectNoError(err)
	f.target, err = startTargetDouble(ctx, f.config.FilePath("target"), fleetMachines, max(f.options.TargetAddresses, 1))
	runner.ExpectNoError(err)
	example, err := f.clusterConfig("example").BuildClusterDeployment()
	runner.ExpectNoError(err)
	f.kind = example.GroupVersionKind().GroupVersion().WithResource("clusterdeployments")
	f.Poll("the kinds", readyLimit, func(ctx context.Context) {
		_, err := f.hub.Resource(f.kind).List(ctx, metav1.ListOptions{})
		runner.ExpectNoError(err)
	})
	f.setStartLatency("0s")
	f.forEachCluster(f.createCluster)
	f.setStartLatency(bareLatency.String())
	for n := range f.clouds {
		f.addFault(n, map[string]any{"action": "DescribeInstances", "delay": describeLatency})
		f.addFault(n, map[string]any{"action": "StartInstances", "delay": changeLatency})
		f.addFault(n, map[string]any{"action": "StopInstances", "delay": changeLatency})
		f.addGroupLatencies(n)
	}
	f.PrintObserved("the ClusterDeployments exist in the hub, and the machines run")
	addresses := runner.ReserveAddresses(f.Context, 2)
	f.metrics, f.probes = addresses[0], addresses[1]
	manager := f.StartProgram("manager", f.config.Torpor, "manager", "--kubeconfig", f.config.hubKubeconfig(),
		"--metrics-address", f.metrics, "--metrics-insecure", "--probe-address", f.probes, "--pprof-address", f.options.Pprof)
	f.AwaitReady(manager, f.probes)
	f.programs["manager"] = manager
	f.failIfMissing("Running", f.awaitAll("Running", f.clusters(), nil))
	f.PrintObserved("all of them are Running")
}

func (f *fleet) clusters() []int {
	all := make([]int, f.size.Clusters)
	for n := range all {
		all[n] = n
	}
	return all
}

func fleetName(cluster int) string { return fmt.Sprintf("fleet-%d", cluster) }

// account returns the index of the cloud with the machines of a cluster.
func (f *fleet) account(cluster int) int { return cluster % f.size.Accounts }

// forEachCluster calls a function for every cluster, with several concurrent calls.
func (f *fleet) forEachCluster(do func(ctx context.Context, cluster int) error) {
	group, ctx := errgroup.WithContext(f.Context)
	group.SetLimit(fleetUsers)
	for n := range f.size.Clusters {
		group.Go(func() error { return do(ctx, n) })
	}
	runner.ExpectNoError(group.Wait())
}

func (f *fleet) createCluster(ctx context.Context, n int) error {
	name := fleetName(n)
	if err := f.createMachines(ctx, n); err != nil {
		return err
	}
	c := targetcluster.Config{Name: name, Namespace: name, Region: region, Version: "4.16.3"}
	deployment, err := c.BuildClusterDeployment()
	if err != nil {
		return err
	}
	if mode := f.groupMode(n); mode != "" {
		deployment.SetAnnotations(map[string]string{machineGroupsAnnotation: mode})
	}
	for _, o := range []struct {
		kind   schema.GroupVersionResource
		object *unstructured.Unstructured
	}{
		{coreKind("namespaces"), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}},
		{coreKind("secrets"), c.BuildSecret(name+"-aws-creds", map[string]any{
			"aws_access_key_id": accessKey, "aws_secret_access_key": "simulated", "endpoint_url": f.clouds[f.account(n)],
		})},
		{coreKind("secrets"), c.BuildSecret(name+"-admin-kubeconfig", map[string]any{"kubeconfig": f.kubeconfigOf(n)})},
		{deployment.GroupVersionKind().GroupVersion().WithResource("clusterdeployments"), deployment},
	} {
		if _, err := f.hub.Resource(o.kind).Namespace(o.object.GetNamespace()).Create(ctx, o.object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create %s of %s: %w", o.kind.Resource, name, err)
		}
	}
	return nil
}

// createMachines creates the machines of a cluster, and if the cluster is grouped, the Auto Scaling group of half of
// them.
func (f *fleet) createMachines(ctx context.Context, n int) error {
	name := fleetName(n)
	form := url.Values{
		"Action": {"RunInstances"}, "ImageId": {"ami-local"}, "InstanceType": {"m5.large"}, "MinCount": {strconv.Itoa(fleetMachines)}, "MaxCount": {strconv.Itoa(fleetMachines)},
		"TagSpecification.1.ResourceType": {"instance"}, "TagSpecification.1.Tag.1.Key": {"Name"}, "TagSpecification.1.Tag.1.Value": {name},
		"TagSpecification.1.Tag.2.Key": {"kubernetes.io/cluster/" + targetcluster.Config{Name: name}.InfraID()}, "TagSpecification.1.Tag.2.Value": {"owned"},
	}
	var created struct {
		IDs []string `xml:"instancesSet>item>instanceId"`
	}
	if err := f.callCloud(ctx, n, form, &created); err != nil || !f.isGrouped(n) {
		return err
	}
	form = url.Values{"Action": {"CreateTags"}, "Tag.1.Key": {"local:auto-scaling-group"}, "Tag.1.Value": {name}}
	for i, id := range created.IDs[:len(created.IDs)/2] {
		form.Set(fmt.Sprintf("ResourceId.%d", i+1), id)
	}
	return f.callCloud(ctx, n, form, nil)
}

// callCloud calls the cloud with a separate key for each cluster, because calls are limited by key. If into is not nil,
// it decodes the response.
func (f *fleet) callCloud(ctx context.Context, n int, form url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.clouds[f.account(n)], strings.NewReader(form.Encode()))
	if err != nil {
		return fmt.Errorf("create request: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/20260101/%s/ec2/aws4_request, SignedHeaders=host, Signature=0", accessKey+fleetName(n), region))
	return send(req, into)
}

func send(req *http.Request, into any) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("call the cloud: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("call the cloud: expected success, found %s", resp.Status)
	}
	if into == nil {
		return nil
	}
	if err := xml.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("read the answer of the cloud: %w", err)
	}
	return nil
}

func (f *fleet) askAdmin(method, cloud, path string, body map[string]any) {
	text, err := json.Marshal(body)
	runner.ExpectNoError(err)
	ctx, cancel := context.WithTimeout(f.Context, attemptLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, cloud+"/_local/"+path, bytes.NewReader(text))
	runner.ExpectNoError(err)
	runner.ExpectNoError(send(req, nil))
}

func (f *fleet) setStartLatency(latency string) {
	for _, cloud := range f.clouds {
		f.askAdmin(http.MethodPost, cloud, "latency", map[string]any{"start": latency})
	}
}

func (f *fleet) addFault(account int, fault map[string]any) {
	f.askAdmin(http.MethodPost, f.clouds[account], "faults", fault)
}

func (f *fleet) measure() {
	for _, way := range []struct{ state, name string }{{"Hibernating", "all_hibernating_seconds"}, {"Running", "all_running_seconds"}} {
		began := f.count()
		processors := f.readProcessors()
		phases, missing := f.change(way.state, f.clusters())
		took := phases.took()
		spent := f.count().since(began)
		if missing == 0 {
			f.figures.AddValue(f.size.figureName(way.name), took)
		}
		transitions := float64(f.size.Clusters)
		f.addCost(spent, transitions)
		f.printPhases(way.state, phases, f.readProcessors().since(processors))
		f.printRequests(spent)
		f.PrintObserved("%d %s, the last after %.1f s; per cluster: %.2f cloud calls (%.2f refused), %.2f status writes, %.2f events, %.2f reads of the hub, %.2f handshakes; %.1f s of the manager's CPU, %.0f MiB; load %s",
			f.size.Clusters-missing, way.state, took, spent.calls/transitions, spent.refused/transitions, spent.statusWrites/transitions, spent.events/transitions,
			spent.hubReads/transitions, spent.handshakes/transitions, spent.cpu, f.managerMemoryMiB(), readLoad())
		f.failIfMissing(way.state, missing)
		f.verifyGroups()
		if way.state == "Hibernating" && f.options.Idle > 0 {
			f.measureIdle()
		}
	}
	f.figures.AddValue(f.size.figureName("manager_rss_bytes"), f.managerMemoryMiB()*mebibyte)
	if f.size.Accounts > 1 {
		f.measureHungAccount()
	}
}

// measureIdle measures the cost while all clusters hibernate. It measures only the second half of a pause, because
// clusters are polled more often at first.
func (f *fleet) measureIdle() {
	f.pause(f.options.Idle / 2)
	before, began := f.count(), time.Now()
	f.pause(f.options.Idle / 2)
	spent, minutes := f.count().since(before), time.Since(began).Minutes()
	fraction := spent.cpu / time.Since(began).Seconds()
	f.figures.AddValue(f.size.figureName("idle_cpu_fraction"), fraction)
	f.figures.AddValue(f.size.figureName("idle_cloud_calls_per_account_and_minute"), spent.calls/minutes/float64(f.size.Accounts))
	f.PrintObserved("all hibernate: %.2f %% of a CPU core for the manager, %.2f cloud calls per account and minute, %.0f handshakes; %.0f MiB; load %s",
		100*fraction, spent.calls/minutes/float64(f.size.Accounts), spent.handshakes, f.managerMemoryMiB(), readLoad())
}

func (f *fleet) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-f.Context.Done():
	case <-timer.C:
	}
}

// measureHungAccount hibernates all clusters while the cloud of one account accepts calls but does not answer.
func (f *fleet) measureHungAccount() {
	others := slices.DeleteFunc(f.clusters(), func(n int) bool { return f.account(n) == 0 })
	// The first matching fault is used, so the latencies are removed first.
	f.askAdmin(http.MethodDelete, f.clouds[0], "faults", nil)
	f.addFault(0, map[string]any{"delay": "1h"})
	phases, missing := f.change("Hibernating", others)
	f.failIfMissing("Hibernating", missing)
	took := phases.took()
	alone := f.figures[f.size.figureName("all_hibernating_seconds")][0]
	f.figures.AddValue("others_slowdown_hung_account", took/alone-1)
	f.PrintObserved("one account hangs: the others are Hibernating after %.1f s; load %s", took, readLoad())
}

func (f *fleet) addCost(c fleetCost, transitions float64) {
	suffix := strings.TrimPrefix(f.size.figureName(""), "_")
	for name, value := range map[string]float64{
		"cloud_calls_per_transition": c.calls, "status_writes_per_transition": c.statusWrites, "events_per_transition": c.events,
		"hub_reads_per_transition": c.hubReads, "handshakes_per_transition": c.handshakes,
	} {
		f.figures.AddValue(name+"_"+suffix, value/transitions)
		f.figures.AddValue(name, value/transitions)
	}
	f.figures.AddValue("manager_cpu_seconds_"+suffix, c.cpu)
}

// change requests a power state of all clusters, waits until the awaited clusters have reached it, and returns the
// number of awaited clusters that have not reached it in time.
func (f *fleet) change(state string, awaited []int) (phases *fleetPhases, missing int) {
	phases = newFleetPhases(state)
	patch := fmt.Appendf(nil, `{"spec":{"powerState":%q}}`, state)
	go f.forEachClusterQuietly(patch, phases)
	return phases, f.awaitAll(state, awaited, phases)
}

func (f *fleet) failIfMissing(state string, missing int) {
	if missing > 0 {
		f.figures.AddValue(f.size.figureName("not_"+strings.ToLower(state)), float64(missing))
		runner.FailStep("expected all clusters to be %s within %s, %d are not", state, f.options.Limit, missing)
	}
}

func (f *fleet) forEachClusterQuietly(patch []byte, phases *fleetPhases) {
	err := runner.RunSteps(func() {
		f.forEachCluster(func(ctx context.Context, n int) error {
			_, err := f.hub.Resource(f.kind).Namespace(fleetName(n)).Patch(ctx, fleetName(n), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "bench"})
			if err != nil {
				return fmt.Errorf("patch %s: %w", fleetName(n), err)
			}
			phases.noteFirst(phaseAsked, fleetName(n), time.Now())
			return nil
		})
	})
	if err != nil {
		f.AddNote("%v", err) // A cluster whose request failed does not change, so the wait for it times out.
	}
}

// awaitAll waits until a watch has shown every awaited cluster in a power state, and returns the number of clusters
// that have not reached the state in time.
func (f *fleet) awaitAll(state string, awaited []int, phases *fleetPhases) int {
	ctx, cancel := context.WithTimeout(f.Context, f.options.Limit)
	defer cancel()
	missing := map[string]bool{}
	for _, n := range awaited {
		missing[fleetName(n)] = true
	}
	began, lastNote := time.Now(), time.Now()
	for len(missing) > 0 && ctx.Err() == nil {
		w, err := f.hub.Resource(f.kind).Watch(ctx, metav1.ListOptions{})
		if ctx.Err() != nil {
			break
		}
		runner.ExpectNoError(err)
		for event := range w.ResultChan() {
			if u, ok := event.Object.(*unstructured.Unstructured); ok {
				now, _, _ := unstructured.NestedString(u.Object, "status", "powerState")
				phases.noteState(u.GetName(), now)
				if now == state {
					delete(missing, u.GetName())
				}
			}
			if len(missing) == 0 {
				w.Stop()
			}
			if time.Since(lastNote) > progressInterval {
				lastNote = time.Now()
				f.PrintObserved("%d of %d are %s after %.0f s; load %s", len(awaited)-len(missing), len(awaited), state, time.Since(began).Seconds(), readLoad())
			}
		}
	}
	return len(missing)
}

// fleetCost is the number of requests and the CPU time since the start.
type fleetCost struct {
	calls, refused, statusWrites, events, hubReads, handshakes, cpu float64
	// requests counts the requests of all clients to the hub, by type.
	requests map[string]float64
}

func (c fleetCost) since(b fleetCost) fleetCost {
	spent := fleetCost{
		c.calls - b.calls, c.refused - b.refused, c.statusWrites - b.statusWrites, c.events - b.events, c.hubReads - b.hubReads, c.handshakes - b.handshakes, c.cpu - b.cpu,
		map[string]float64{},
	}
	for what, count := range c.requests {
		spent.requests[what] = count - b.requests[what]
	}
	return spent
}

func (f *fleet) count() fleetCost {
	c := fleetCost{handshakes: float64(f.target.handshakes.Load()), cpu: f.sumMetric("process_cpu_seconds_total", func(map[string]string) bool { return true }), requests: map[string]float64{}}
	for _, cloud := range f.clouds {
		f.cloudURL = cloud
		c.calls += f.countCloudCalls()
		var calls map[string]float64
		f.askCloud("calls", &calls)
		for name, n := range calls {
			if action, isRefused := strings.CutSuffix(name, ".errors"); isRefused && !strings.HasSuffix(action, ".dryRun") {
				c.refused += n
			}
		}
	}
	for line := range strings.Lines(f.kubectl("get", "--raw", "/metrics")) {
		if !strings.HasPrefix(line, "apiserver_request_total{") {
			continue
		}
		value, _ := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
		has := func(label, want string) bool { return readLabel(line, label) == want }
		switch {
		case has("resource", "clusterdeployments") && has("subresource", "status"):
			c.statusWrites += value
		case has("resource", "events") && has("verb", "POST"):
			c.events += value
		case has("resource", "secrets") && has("verb", "GET"), has("resource", "clusterdeployments") && has("verb", "GET"):
			c.hubReads += value
		}
		what := readLabel(line, "verb") + " " + readLabel(line, "resource")
		if subresource := readLabel(line, "subresource"); subresource != "" {
			what += "/" + subresource
		}
		c.requests[what] += value
	}
	return c
}

// readLabel returns the value of a label in a line of metrics.
func readLabel(line, label string) string {
	_, rest, _ := strings.Cut(line, label+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

func readLoad() string {
	text, err := os.ReadFile(filepath.Join("/proc", "loadavg"))
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:2], " ")
}
