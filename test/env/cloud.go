// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Region is the simulated cloud's only region.
	Region = "local-1"
	// AccessKey is the access key ID that tests use. A cloud that is started without --access-keys accepts any access
	// key.
	AccessKey = "AKIATORPORTEST000001"
	// SecretKey is the secret key, which must not appear in any output.
	SecretKey = "s3cr3t-Of/torpor+tests"
)

// CloudServer is a simulated cloud in its own process.
type CloudServer struct {
	*Process
	// URL is the endpoint of the cloud.
	URL string

	http *http.Client
}

// StartCloud starts a simulated cloud whose machines take 100 ms to start and to stop; flags are additional flags of
// `local cloud`. Its port remains reserved until the test ends, so that a test can kill and restart the cloud.
func StartCloud(t testing.TB, flags ...string) *CloudServer {
	t.Helper()
	_, port, err := net.SplitHostPort(FreeAddress(t))
	ExpectNoError(t, err)
	args := append([]string{
		"cloud", "--dir", t.TempDir(), "--port", port, "--region", Region, "--start-latency", "100ms", "--stop-latency", "100ms",
	}, flags...)
	c := &CloudServer{
		Process: StartProcess(t, localBinary(t), args, nil),
		// No idle connections, because some tests count goroutines.
		http: &http.Client{Timeout: callTimeout, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	c.URL = c.WaitForLine(t, "ready: ")
	return c
}

// CredentialsData returns the data of a Secret with credentials for this cloud.
func (c *CloudServer) CredentialsData() map[string][]byte {
	return map[string][]byte{
		"aws_access_key_id": []byte(AccessKey), "aws_secret_access_key": []byte(SecretKey), "endpoint_url": []byte(c.URL),
	}
}

// CountCalls returns how often each action was called. The key "<action>.errors" counts the calls that failed.
func (c *CloudServer) CountCalls(t testing.TB) map[string]int {
	t.Helper()
	var counts map[string]int
	c.callAdmin(t, http.MethodGet, "calls", nil, &counts)
	return counts
}

// ResetCalls resets the counts to zero.
func (c *CloudServer) ResetCalls(t testing.TB) {
	t.Helper()
	c.callAdmin(t, http.MethodDelete, "calls", nil, nil)
}

// CloudFault is an injected fault of the cloud. `local cloud` documents faults, and rejects invalid ones.
type CloudFault struct {
	// Kind is stuckPending, stuckStopping or lostStart; empty for a call that fails or is delayed.
	Kind string `json:"kind,omitempty"`
	// Action limits a fault of calls to one action; empty means every action.
	Action string `json:"action,omitempty"`
	// InstanceIDs limits the fault to these machines; empty means all.
	InstanceIDs []string `json:"instanceIDs,omitempty"`
	// Code and Message are the error in the response.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Times is how often the fault occurs; 0 means until it is cleared.
	Times int `json:"times,omitempty"`
	// Delay is the delay of the response, such as "1.5s".
	Delay string `json:"delay,omitempty"`
}

// InjectFault adds a fault.
func (c *CloudServer) InjectFault(t testing.TB, f CloudFault) {
	t.Helper()
	c.callAdmin(t, http.MethodPost, "faults", f, nil)
}

// ClearFaults removes all faults.
func (c *CloudServer) ClearFaults(t testing.TB) {
	t.Helper()
	c.callAdmin(t, http.MethodDelete, "faults", nil, nil)
}

// SetLatency sets how long later starts and stops of machines take.
func (c *CloudServer) SetLatency(t testing.TB, start, stop time.Duration) {
	t.Helper()
	c.callAdmin(t, http.MethodPost, "latency", map[string]string{"start": start.String(), "stop": stop.String()}, nil)
}

// callAdmin calls the cloud's admin interface, and decodes the response unless into is nil. It can also be called in
// cleanups.
func (c *CloudServer) callAdmin(t testing.TB, method, path string, body, into any) {
	t.Helper()
	text, err := json.Marshal(body)
	ExpectNoError(t, err)
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, c.URL+"/_local/"+path, bytes.NewReader(text))
	ExpectNoError(t, err)
	c.sendRequest(t, request, func(answer []byte) error {
		if into == nil {
			return nil
		}
		return json.Unmarshal(answer, into)
	})
}

// sendRequest sends a request and passes the response body to read. Any status other than success fails the test.
func (c *CloudServer) sendRequest(t testing.TB, request *http.Request, read func([]byte) error) {
	t.Helper()
	answer, err := c.http.Do(request)
	if err != nil {
		t.Fatalf("call the cloud: %v", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("read the cloud's answer: %v", err)
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		t.Fatalf("%s %s: %s: %s", request.Method, request.URL.Path, answer.Status, text)
	}
	if err := read(text); err != nil {
		t.Fatalf("decode the cloud's answer: %v: %s", err, text)
	}
}

// CloudInstance is a machine as the cloud itself reports it.
type CloudInstance struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
	// AskedAt is when a call last changed the state.
	AskedAt   time.Time         `json:"askedAt"`
	ChangedAt time.Time         `json:"changedAt"`
	PID       int               `json:"pid"`
	PrivateIP string            `json:"privateIP"`
	Tags      map[string]string `json:"tags"`
}

// ListInstances returns the machines of a cluster, or all machines if infraID is empty.
func (c *CloudServer) ListInstances(t testing.TB, infraID string) []CloudInstance {
	t.Helper()
	var all []CloudInstance
	c.callAdmin(t, http.MethodGet, "instances", nil, &all)
	return slices.DeleteFunc(all, func(i CloudInstance) bool {
		return infraID != "" && i.Tags[clusterTag(infraID)] != "owned"
	})
}

// ExpectState returns an error unless the cluster has machines that are neither terminated nor shutting down, and all
// of these are in the state. It is for use with Eventually.
func (c *CloudServer) ExpectState(t testing.TB, infraID, state string) error {
	t.Helper()
	machines := slices.DeleteFunc(c.ListInstances(t, infraID), func(i CloudInstance) bool { return i.State == "terminated" || i.State == "shutting-down" })
	for _, i := range machines {
		if i.State != state {
			return fmt.Errorf("expected %s to be %s, found %s", i.Name, state, i.State)
		}
	}
	if len(machines) == 0 {
		return fmt.Errorf("expected machines of %s, found none", infraID)
	}
	return nil
}

// RunInstances creates n machines without commands, named <infraID>-0 and so on, and returns their IDs when they are
// running.
func (c *CloudServer) RunInstances(t testing.TB, infraID string, n int) []string {
	t.Helper()
	var ids []string
	for i := range n {
		ids = append(ids, c.runInstance(t, infraID, fmt.Sprintf("%s-%d", infraID, i)))
	}
	Eventually(t, "the machines run", func() error { return c.ExpectState(t, infraID, "running") })
	return ids
}

// RunInstance creates one machine without a command, and returns its id.
func (c *CloudServer) RunInstance(t testing.TB, infraID, name string) string {
	t.Helper()
	return c.runInstance(t, infraID, name)
}

// RunSpotInstance creates a machine of a one-time spot request, which can only be terminated.
func (c *CloudServer) RunSpotInstance(t testing.TB, infraID, name string) string {
	t.Helper()
	return c.runInstance(t, infraID, name, "InstanceMarketOptions.MarketType", "spot")
}

// StopInstance stops one machine directly at the cloud, without the manager.
func (c *CloudServer) StopInstance(t testing.TB, id string) {
	t.Helper()
	c.callEC2(t, url.Values{"Action": {"StopInstances"}, "InstanceId.1": {id}}, func([]byte) error { return nil })
}

// JoinGroup makes a machine a member of an Auto Scaling group, which is created with its first member. The group
// replaces members that stop, unless its processes are suspended.
func (c *CloudServer) JoinGroup(t testing.TB, id, group string) {
	t.Helper()
	c.createTag(t, id, "local:auto-scaling-group", group)
}

// RequireReservation makes a machine run in a capacity reservation, and require this reservation at each start.
func (c *CloudServer) RequireReservation(t testing.TB, id, reservation string) {
	t.Helper()
	c.createTag(t, id, "local:capacity-reservation", reservation)
}

// CancelReservation cancels the capacity reservation that a machine requires. The machine continues to run, but cannot
// be started again.
func (c *CloudServer) CancelReservation(t testing.TB, id string) {
	t.Helper()
	c.createTag(t, id, "local:capacity-reservation-cancelled", "true")
}

// MarkNodeGroup turns an Auto Scaling group into the group of a managed node group of EKS. The node group has the same
// name. id is a member.
func (c *CloudServer) MarkNodeGroup(t testing.TB, id, group string) {
	t.Helper()
	c.createTag(t, id, "eks:cluster-name", "eks-"+group)
	c.createTag(t, id, "eks:nodegroup-name", group)
}

func (c *CloudServer) createTag(t testing.TB, id, key, value string) {
	t.Helper()
	c.callEC2(t, url.Values{"Action": {"CreateTags"}, "ResourceId.1": {id}, "Tag.1.Key": {key}, "Tag.1.Value": {value}}, func([]byte) error { return nil })
}

// CloudGroup is an Auto Scaling group as the cloud reports it.
type CloudGroup struct {
	Min       int      `xml:"MinSize"`
	Max       int      `xml:"MaxSize"`
	Desired   int      `xml:"DesiredCapacity"`
	Suspended []string `xml:"SuspendedProcesses>member>ProcessName"`
	// Members is the number of instances.
	Members int      `xml:"-"`
	IDs     []string `xml:"Instances>member>InstanceId"`
}

// DescribeGroup returns an Auto Scaling group, without the ids of its members.
func (c *CloudServer) DescribeGroup(t testing.TB, group string) CloudGroup {
	t.Helper()
	var answer struct {
		Groups []CloudGroup `xml:"DescribeAutoScalingGroupsResult>AutoScalingGroups>member"`
	}
	c.call(t, "autoscaling", url.Values{"Action": {"DescribeAutoScalingGroups"}, "AutoScalingGroupNames.member.1": {group}, "Version": {"2011-01-01"}},
		func(text []byte) error { return xml.Unmarshal(text, &answer) })
	if len(answer.Groups) != 1 {
		t.Fatalf("expected the group %s, found %+v", group, answer.Groups)
	}
	found := answer.Groups[0]
	found.Members, found.IDs = len(found.IDs), nil
	return found
}

// NodeGroup is a managed node group of EKS as the cloud reports it.
type NodeGroup struct {
	Status string `json:"status"`
	Size   struct {
		Min     int `json:"minSize"`
		Max     int `json:"maxSize"`
		Desired int `json:"desiredSize"`
	} `json:"scalingConfig"`
}

// DescribeNodeGroup returns the node group of EKS that MarkNodeGroup has created.
func (c *CloudServer) DescribeNodeGroup(t testing.TB, group string) NodeGroup {
	t.Helper()
	var answer struct {
		Group NodeGroup `json:"nodegroup"`
	}
	c.callEKS(t, http.MethodGet, nodeGroupPath(group), "", func(text []byte) error { return json.Unmarshal(text, &answer) })
	return answer.Group
}

// UpdateNodeGroup starts an update of a node group. The scaling configuration is JSON.
func (c *CloudServer) UpdateNodeGroup(t testing.TB, group, scaling string) {
	t.Helper()
	c.callEKS(t, http.MethodPost, nodeGroupPath(group)+"/update-config", `{"scalingConfig":`+scaling+`}`, func([]byte) error { return nil })
}

// nodeGroupPath returns the path of the node group that MarkNodeGroup has created.
func nodeGroupPath(group string) string { return "/clusters/eks-" + group + "/node-groups/" + group }

func (c *CloudServer) callEKS(t testing.TB, method, path, body string, read func([]byte) error) {
	t.Helper()
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, c.URL+path, strings.NewReader(body))
	ExpectNoError(t, err)
	c.authorize(request, "eks")
	c.sendRequest(t, request, read)
}

// CallAutoScaling changes an Auto Scaling group. Parameters alternate names and values.
func (c *CloudServer) CallAutoScaling(t testing.TB, action, group string, parameters ...string) {
	t.Helper()
	form := url.Values{"Action": {action}, "AutoScalingGroupName": {group}, "Version": {"2011-01-01"}}
	for pair := range slices.Chunk(parameters, 2) {
		form.Set(pair[0], pair[1])
	}
	c.call(t, "autoscaling", form, func([]byte) error { return nil })
}

// ReplaceInstance terminates one machine, creates another one for its cluster, and returns the new ID.
func (c *CloudServer) ReplaceInstance(t testing.TB, infraID, id string) string {
	t.Helper()
	c.callEC2(t, url.Values{"Action": {"TerminateInstances"}, "InstanceId.1": {id}}, func([]byte) error { return nil })
	return c.runInstance(t, infraID, infraID+"-replacement")
}

// runInstance creates a machine. Additional parameters of the call alternate names and values.
func (c *CloudServer) runInstance(t testing.TB, infraID, name string, parameters ...string) string {
	t.Helper()
	var made struct {
		IDs []string `xml:"instancesSet>item>instanceId"`
	}
	form := url.Values{
		"Action": {"RunInstances"}, "ImageId": {"ami-test"}, "MinCount": {"1"}, "MaxCount": {"1"},
		"TagSpecification.1.ResourceType": {"instance"},
		"TagSpecification.1.Tag.1.Key":    {"Name"}, "TagSpecification.1.Tag.1.Value": {name},
		"TagSpecification.1.Tag.2.Key": {clusterTag(infraID)}, "TagSpecification.1.Tag.2.Value": {"owned"},
	}
	for pair := range slices.Chunk(parameters, 2) {
		form.Set(pair[0], pair[1])
	}
	c.callEC2(t, form, func(answer []byte) error { return xml.Unmarshal(answer, &made) })
	if len(made.IDs) != 1 {
		t.Fatalf("RunInstances: expected one machine, found %v", made.IDs)
	}
	return made.IDs[0]
}

func (c *CloudServer) callEC2(t testing.TB, form url.Values, read func([]byte) error) {
	t.Helper()
	form.Set("Version", "2016-11-15")
	c.call(t, "ec2", form, read)
}

// call calls a service of the cloud.
func (c *CloudServer) call(t testing.TB, service string, form url.Values, read func([]byte) error) {
	t.Helper()
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, c.URL, strings.NewReader(form.Encode()))
	ExpectNoError(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	c.authorize(request, service)
	c.sendRequest(t, request, read)
}

// authorize adds a signature. The cloud checks only the key, the region and the service in it.
func (c *CloudServer) authorize(request *http.Request, service string) {
	request.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+AccessKey+"/20260101/"+Region+"/"+service+"/aws4_request, SignedHeaders=host, Signature=0")
}

func clusterTag(infraID string) string { return "kubernetes.io/cluster/" + infraID }

// ClusterOptions describe a target cluster. Empty fields use the defaults of `local cluster create`.
type ClusterOptions struct {
	// Name of the cluster and its ClusterDeployment, at most 32 lower-case letters, digits and dashes.
	Name string
	// Namespace of the ClusterDeployment.
	Namespace string
	// Nodes is the number of nodes.
	Nodes int
	// Certificates is the validity of the nodes' certificates, at least 20 s.
	Certificates time.Duration
	// Flags are additional flags of `local cluster create`.
	Flags []string
}

// TargetCluster is a cluster whose machines are processes of the simulated cloud.
type TargetCluster struct {
	Name, Namespace, InfraID string
	// Kubeconfig is the path of the administrator's kubeconfig, and Manifest the path of a manifest with the objects
	// for the hub.
	Kubeconfig, Manifest string
	// Config and Client give administrator access while the cluster is running.
	Config *rest.Config
	Client client.Client
}

// CreateTargetCluster creates a target cluster, and returns when its nodes are ready. The cloud must have been
// started with --allow-commands. If the hub does not serve ClusterDeployments yet, the test must apply Manifest
// later.
func CreateTargetCluster(t testing.TB, hub *Environment, cloud *CloudServer, o ClusterOptions) *TargetCluster {
	t.Helper()
	dir := t.TempDir()
	args := []string{"cluster", "create", o.Name, "--hub", hub.KubeconfigPath(t), "--cloud", cloud.URL, "--region", Region, "--access-key", AccessKey, "--dir", dir}
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	args = append(args, "--namespace", o.Namespace)
	if o.Nodes > 0 {
		args = append(args, "--nodes", strconv.Itoa(o.Nodes))
	}
	if o.Certificates > 0 {
		args = append(args, "--certificates", o.Certificates.String())
	}
	p := StartProcess(t, localBinary(t), append(args, o.Flags...), nil)
	c := &TargetCluster{
		Name: o.Name, Namespace: o.Namespace, Kubeconfig: p.WaitForLine(t, "kubeconfig: "), Manifest: filepath.Join(dir, "clusterdeployment.yaml"),
	}
	if code := p.ExitCode(); code != 0 {
		t.Fatalf("make cluster %s: exit code %d", o.Name, code)
	}
	_, c.InfraID, _ = strings.Cut(strings.TrimSuffix(p.WaitForLine(t, "ready: cluster "), ")"), "(infraID ")
	var err error
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		t.Fatalf("read the cluster's kubeconfig: %v", err)
	}
	c.Config.QPS = -1
	c.Client = newClient(t, c.Config)
	return c
}
