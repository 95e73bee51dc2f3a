// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"bytes"
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/background"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
)

const (
	// promptLooks is the number of parallel polls. patientLooks is the number of parallel polls of clusters that did
	// not respond in time before, so they do not delay others.
	promptLooks, patientLooks = 100, 25
	// kubeconfigAge is how long a working kubeconfig is used before the next read.
	kubeconfigAge = time.Minute
	// patientAfter is the duration of a failed poll from which the cluster counts as slow.
	patientAfter = 2 * time.Second
	// prepareDelay is the delay before the kubeconfig of a starting cluster is read, so that a fleet is started first.
	// No machine runs before this delay has passed.
	prepareDelay = 5 * time.Second
	// calmInterval is the shortest interval of polls that can be delayed. While passes wait for other polls, a poll
	// that no pass waits for is delayed by at most its own interval or maxDelay, whichever is shorter, and is tried
	// again after delayStep.
	calmInterval, maxDelay, delayStep = 5 * time.Second, 15 * time.Second, time.Second
	// surveysPerSecond is enough to survey each of 10,000 clusters once an hour.
	surveysPerSecond, surveysAtOnce = 5, 20
)

// Pool polls clusters outside of reconcile passes, so that no pass waits for the response of a cluster. A connection is
// kept as long as the cluster runs and responds. The fields are set before the pool is used.
type Pool struct {
	Dialer Dialer
	// Clock is the source of the current time.
	Clock clock.PassiveClock
	// ReadKubeconfig reads a Secret of a namespace. A problem with the Secret is a *KubeconfigError.
	ReadKubeconfig func(ctx context.Context, namespace, secret string) ([]byte, error)
	// Enqueue schedules a pass of the cluster, and does not block. isCalm is true if no earlier pass waits for the
	// poll, and the cluster is polled at calmInterval or less often.
	Enqueue func(cluster types.NamespacedName, isCalm bool)

	// clusters contains the lock that guards all state of the pool.
	clusters *background.Service[types.NamespacedName, pooledCluster]
	// hurried are the clusters whose poll a pass waits for, except clusters that were slow before.
	hurried map[types.NamespacedName]bool
	// surveys limits the rate of surveys, so that the stop of a whole fleet does not wait until all its clusters are
	// surveyed.
	surveys flowcontrol.PassiveRateLimiter
	counts  PoolCounts
}

// PoolCounts counts polls with and without a response.
type PoolCounts struct {
	Answers, Silences float64
}

// NewPool returns a pool, which dials no cluster until it is started.
func NewPool(d Dialer, c clock.PassiveClock) *Pool {
	p := &Pool{
		Dialer: d, Clock: c, hurried: map[types.NamespacedName]bool{},
		surveys: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(surveysPerSecond, surveysAtOnce, c),
	}
	p.clusters = background.NewService(c, p.take)
	p.clusters.Queue = func(_ types.NamespacedName, c *pooledCluster) background.Share {
		if c.isSlow {
			return background.Share{Name: "patient", Limit: patientLooks}
		}
		return background.Share{Name: "prompt", Limit: promptLooks}
	}
	return p
}

// KubeconfigError explains why no kubeconfig is available, or why the override of its server cannot be used.
type KubeconfigError struct{ Message string }

// Error implements error.
func (e *KubeconfigError) Error() string { return e.Message }

// Depth defines how much of a cluster is read.
type Depth int

// Each depth includes the previous depths, but only ReadAPI reads the version. The first depth only prepares the
// connection and dials no cluster.
const (
	readNothing Depth = iota
	ReadAPI
	ReadNodes
	ReadMachines
	ReadRequests
)

// Question describes the data that a pass needs from a cluster.
type Question struct {
	Cluster types.NamespacedName
	// Secret is the kubeconfig's Secret. Override replaces the server in it.
	Secret   string
	Override hibernation.ServerOverride
	// WakeUp is when the cluster's last resume began. A connection from before that time is not used.
	WakeUp time.Time
	Depth  Depth
	// WantsOperators also requests the ClusterOperators of an OpenShift cluster. Their leases are read only together
	// with the certificate requests.
	WantsOperators bool
	// WantsPods also requests the pods of workers.
	WantsPods bool
	// WantsHealthChecks also requests the cluster's MachineHealthChecks.
	WantsHealthChecks bool
	// WantsSurvey also requests a survey, if the rate limit permits one now. If PausesHealthChecks is true, the
	// survey omits MachineHealthChecks that a hibernation pauses.
	WantsSurvey, PausesHealthChecks bool
}

// Look is the result of a poll.
type Look struct {
	Question
	// At is when the poll began, and Took is its duration.
	At   time.Time
	Took time.Duration
	// Err explains why the cluster did not respond.
	Err error
	// Date is the time by the cluster's own clock; zero if it is unknown.
	Date  time.Time
	Nodes []hibernation.ObservedNode
	// Requests are certificate requests. RequestsErr explains why they could not be read.
	Requests    []certificatesv1.CertificateSigningRequest
	RequestsErr error
	Machines
	// HasReadMachines is true if the list of Machines is complete.
	HasReadMachines bool
	// Version is the version of an OpenShift cluster. It is empty for other clusters, and if the user has no permission
	// to read it. Only polls with the depth ReadAPI read it.
	Version string
	// Approvals are the results of previously requested approvals.
	Approvals []Approval
	// Replaced are the names of deleted Machines that were not yet reported to a pass. Replacement is the result of
	// the last attempt.
	Replaced    []string
	Replacement Replacement
	// Pods are the pods of workers. PodsErr explains why they could not be read.
	Pods    hibernation.WorkerPods
	PodsErr error
	// Drained is the result of the last attempt to cordon, uncordon or evict.
	Drained DrainResult
	// Operators are ClusterOperators. OperatorsErr explains why they could not be read.
	Operators    []hibernation.ObservedOperator
	OperatorsErr error
	// HealthChecks are the cluster's MachineHealthChecks. HealthChecksErr explains why they could not be read. Paused
	// is the last attempt to change them.
	HealthChecks    []HealthCheck
	HealthChecksErr error
	Paused          PauseAttempt
	// Survey contains the problems that may affect a stop; nil without a survey.
	Survey *preflight.Survey
}

// Replacement is an attempt to delete Machines, so the cluster replaces them.
type Replacement struct {
	At  time.Time
	Err error
}

// Approval is the result of approving a certificate request. A request that was decided, changed or deleted in
// between is not an error.
type Approval struct {
	Request *certificatesv1.CertificateSigningRequest
	IsMade  bool
	Err     error
}

// pooledCluster is the state of one cluster.
type pooledCluster struct {
	Question
	// look is the result that no pass has read yet, or nil. silence describes why the cluster did not respond to the
	// last poll; empty if it did.
	look    *Look
	silence string
	isSlow  bool
	// isPlain is true if the cluster is not an OpenShift cluster.
	isPlain bool
	// interval is the pause before the next poll, as set by Watch. The pause is repeated after each poll that fails
	// with the same error as the previous one, unless a pass waits for the result.
	interval time.Duration
	// isAwaited is true if a pass has returned and waits for the result of the poll.
	isAwaited bool
	// approvals are sent before the next poll. made are the results.
	approvals []certificatesv1.CertificateSigningRequest
	made      []Approval
	// toReplace are Machines to delete before the next poll. replaced are the deleted Machines, and replacement is the
	// last attempt.
	toReplace   []hibernation.ReplaceableMachine
	replaced    []string
	replacement Replacement
	// toDrain is done before the next poll. drained is the last attempt, and lastEvicted is the last pod that was
	// tried.
	toDrain     Drain
	drained     DrainResult
	lastEvicted string
	// toPause is done before the first poll that begins at or after pauseDue. paused is the last attempt.
	toPause  []HealthCheckChange
	pauseDue time.Time
	paused   PauseAttempt
	connection
}

// connection is a connection to a cluster that has responded. While a poll is in progress, the poll owns the
// connection.
type connection struct {
	client       *ClusterClient
	kubeconfig   []byte
	kubeconfigAt time.Time
	override     hibernation.ServerOverride
	wakeUp       time.Time
}

func (c *connection) end() {
	if c.client != nil {
		c.client.Close()
	}
	*c = connection{}
}

// RequestLook returns a result that no pass has read yet. If the second result is false, the pass must wait for one.
func (p *Pool) RequestLook(q Question) (Look, bool) {
	p.clusters.Lock()
	defer p.clusters.Unlock()
	c := p.register(q)
	if c.look != nil && c.look.answers(q) {
		seen := *c.look
		seen.Approvals, c.made, c.look = c.made, nil, nil
		seen.Replaced, seen.Replacement, c.replaced = c.replaced, c.replacement, nil
		seen.Drained, seen.Paused = c.drained, c.paused
		c.toPause = nil // This pass decides again whether to pause, based on a newer observation.
		c.WantsSurvey = false
		return seen, true
	}
	p.hurry(c)
	return Look{}, false
}

// AskFurther requests data that a poll has not read. Deleted Machines in the poll's result are included in the next
// result, because this pass returns without a report.
func (p *Pool) AskFurther(q Question, seen Look) {
	p.clusters.Lock()
	defer p.clusters.Unlock()
	c := p.register(q)
	c.replaced = append(seen.Replaced, c.replaced...)
	p.hurry(c)
}

func (p *Pool) register(q Question) *pooledCluster {
	c := p.clusters.Get(q.Cluster)
	if c == nil {
		c = p.clusters.Put(q.Cluster, pooledCluster{})
	}
	c.Question = q
	return c
}

// hurry makes a poll due now, because a pass waits for it.
func (p *Pool) hurry(c *pooledCluster) {
	if c.isAwaited = true; !c.isSlow {
		p.hurried[c.Cluster] = true
	}
	p.clusters.Ask(c.Cluster, p.Clock.Now())
}

// Prepare reads the kubeconfig of a cluster before the cluster is polled.
func (p *Pool) Prepare(q Question) {
	p.clusters.Lock()
	defer p.clusters.Unlock()
	if c := p.clusters.Get(q.Cluster); c != nil && c.isOfSameServer(q) {
		return // The connection is already prepared, or is being prepared.
	}
	q.Depth = readNothing
	p.register(q)
	p.clusters.Ask(q.Cluster, p.Clock.Now().Add(prepareDelay))
}

// isOfSameServer reports whether two questions concern the same server after the same resume.
func (q *Question) isOfSameServer(other Question) bool {
	return q.Secret == other.Secret && q.Override == other.Override && q.WakeUp.Equal(other.WakeUp)
}

func (l *Look) answers(q Question) bool {
	return l.isOfSameServer(q) && l.Depth >= q.Depth &&
		(l.WantsSurvey || !q.WantsSurvey) && (l.WantsPods || !q.WantsPods) && (l.WantsHealthChecks || !q.WantsHealthChecks) && (l.WantsOperators || !q.WantsOperators)
}

// IsPlain reports whether a cluster has responded and is not an OpenShift cluster.
func (p *Pool) IsPlain(cluster types.NamespacedName) bool {
	p.clusters.Lock()
	defer p.clusters.Unlock()
	c := p.clusters.Get(cluster)
	return c != nil && c.isPlain
}

// Watch polls a cluster again after an interval. It enqueues the cluster unless the poll fails with the same error as
// before.
func (p *Pool) Watch(cluster types.NamespacedName, interval time.Duration) {
	p.clusters.Lock()
	defer p.clusters.Unlock()
	if c := p.clusters.Get(cluster); c != nil {
		c.interval = interval
		p.clusters.Ask(cluster, p.Clock.Now().Add(interval))
	}
}

// Approve approves certificate requests, and then polls the cluster.
func (p *Pool) Approve(cluster types.NamespacedName, requests []certificatesv1.CertificateSigningRequest) {
	p.clusters.Lock()
	defer p.clusters.Unlock()
	if c := p.clusters.Get(cluster); c != nil {
		c.approvals = append(c.approvals, requests...)
		p.hurry(c)
	}
}

// Replace deletes Machines, and then polls the cluster.
func (p *Pool) Replace(cluster types.NamespacedName, machines []hibernation.ReplaceableMachine) {
	p.clusters.Lock()
	defer p.clusters.Unlock()
	if c := p.clusters.Get(cluster); c != nil {
		c.toReplace = machines
		p.hurry(c)
	}
}

// Drain cordons or uncordons nodes and evicts pods, and then polls the cluster. The new Drain replaces the previous
// one. There is a pause between attempts, because the evictions that a PodDisruptionBudget prevents are repeated.
func (p *Pool) Drain(cluster types.NamespacedName, d Drain) {
	p.clusters.Lock()
	defer p.clusters.Unlock()
	c := p.clusters.Get(cluster)
	if c == nil {
		return
	}
	if c.toDrain = d; !d.isEmpty() {
		due := p.Clock.Now()
		if next := c.drained.At.Add(drainPause); next.After(due) {
			due = next
		}
		p.clusters.Ask(cluster, due)
	}
}

// Rest closes the connection to a cluster that must not be dialled, or was deleted, and drops its state.
func (p *Pool) Rest(cluster types.NamespacedName) {
	p.clusters.Lock()
	defer p.clusters.Unlock()
	if c := p.clusters.Get(cluster); c != nil {
		c.end()
		p.clusters.Forget(cluster)
		delete(p.hurried, cluster)
	}
}

// ReadCounts returns the number of polls so far.
func (p *Pool) ReadCounts() PoolCounts {
	p.clusters.Lock()
	defer p.clusters.Unlock()
	return p.counts
}

// Start implements manager.Runnable. It returns when ctx and all polls have ended.
func (p *Pool) Start(ctx context.Context) error {
	err := p.clusters.Start(ctx)
	p.clusters.Lock()
	defer p.clusters.Unlock()
	for _, cluster := range p.clusters.ListKeys() {
		p.clusters.Get(cluster).end()
	}
	return err
}

// lookJob is one poll of a cluster, with the preceding actions.
type lookJob struct {
	connection
	question  Question
	approvals []certificatesv1.CertificateSigningRequest
	made      []Approval
	toReplace []hibernation.ReplaceableMachine
	replaced  []string
	// replacement is zero if no replacement was tried.
	replacement Replacement
	toDrain     Drain
	drained     DrainResult
	lastEvicted string
	toPause     []HealthCheckChange
	paused      PauseAttempt
}

func (p *Pool) take(_ types.NamespacedName, c *pooledCluster, due time.Time) background.Call {
	now := p.Clock.Now()
	// A poll that no pass waits for is delayed for a while if passes wait for other polls.
	if len(p.hurried) > 0 && !c.isAwaited && !c.isSlow && c.interval >= calmInterval && now.Sub(due) < min(c.interval, maxDelay) {
		return background.Call{Again: now.Add(delayStep)}
	}
	job := &lookJob{connection: c.connection, question: c.Question, approvals: c.approvals, toReplace: c.toReplace, toDrain: c.toDrain, lastEvicted: c.lastEvicted, toPause: c.takePauses(now)}
	c.toDrain = Drain{}
	c.approvals, c.toReplace, c.connection, c.WantsSurvey = nil, nil, connection{}, false
	return background.Call{Timeout: LookTimeout, Drop: job.end, Do: func(ctx context.Context) func() {
		look := p.lookAt(ctx, job)
		p.count(look)
		return func() { p.publish(c, job, look) }
	}}
}

// lookAt carries out the requested actions, and then reads the requested data. Only one poll of a cluster is in
// progress at any time.
func (p *Pool) lookAt(ctx context.Context, job *lookJob) *Look {
	look := &Look{Question: job.question, At: p.Clock.Now()}
	client, err := p.connect(ctx, job, look.At)
	look.Err = err
	for i := range job.approvals {
		r := &job.approvals[i]
		if look.Err == nil {
			err = client.ApproveRequest(ctx, r)
		}
		job.made = append(job.made, Approval{Request: r, IsMade: err == nil, Err: ignoreDecided(err)})
	}
	if look.Err == nil {
		job.replace(ctx, client, look.At)
		job.drain(ctx, client, look.At)
		job.changeHealthChecks(ctx, client, look.At)
	}
	if look.Err == nil && look.Depth > readNothing {
		look.Err = client.read(ctx, look)
	}
	look.Took = p.Clock.Since(look.At)
	if look.Err == nil && look.WantsSurvey && p.surveys.TryAccept() {
		look.Survey = client.ReadSurvey(ctx, look)
	}
	if look.Err != nil {
		// A partial result must not cause a decision: a node that is missing in the list would look deleted.
		look.Nodes, look.Requests, look.Machines, look.HasReadMachines, look.Pods = nil, nil, Machines{}, false, hibernation.WorkerPods{}
		look.HealthChecks = nil
	}
	return look
}

// replace stops at the first error. A later pass retries the remaining Machines.
func (j *lookJob) replace(ctx context.Context, client *ClusterClient, now time.Time) {
	for _, m := range j.toReplace {
		j.replacement = Replacement{At: now, Err: client.ReplaceMachine(ctx, m)}
		if j.replacement.Err != nil {
			return
		}
		j.replaced = append(j.replaced, m.Name)
	}
}

// ignoreDecided drops the errors of objects that were changed or deleted after they were observed.
func ignoreDecided(err error) error {
	if k8serrors.IsConflict(err) || k8serrors.IsNotFound(err) {
		return nil
	}
	return err
}

// connect returns the existing connection while the cluster responds. It creates a new one after an error, a resume,
// a new kubeconfig or another override.
func (p *Pool) connect(ctx context.Context, job *lookJob, now time.Time) (*ClusterClient, error) {
	isSame := job.client != nil && job.wakeUp.Equal(job.question.WakeUp) && job.override == job.question.Override
	if isSame && now.Sub(job.kubeconfigAt) < kubeconfigAge {
		return job.client.renew()
	}
	kubeconfig, err := p.ReadKubeconfig(ctx, job.question.Cluster.Namespace, job.question.Secret)
	if err != nil {
		return nil, err
	}
	if isSame && bytes.Equal(kubeconfig, job.kubeconfig) {
		job.kubeconfigAt = now
		return job.client.renew()
	}
	job.end()
	client, err := p.Dialer.Dial(kubeconfig, job.question.Override)
	if err != nil {
		return nil, err
	}
	job.connection = connection{client: client, kubeconfig: kubeconfig, kubeconfigAt: now, override: job.question.Override, wakeUp: job.question.WakeUp}
	return client, nil
}

// count counts a poll, unless it only prepared the connection.
func (p *Pool) count(look *Look) {
	p.clusters.Lock()
	defer p.clusters.Unlock()
	switch {
	case look.Depth == readNothing:
	case look.Err == nil:
		p.counts.Answers++
	default:
		p.counts.Silences++
	}
}

// publish stores a result. It enqueues the cluster, unless a pass has requested more data during the poll, or the poll
// failed with the same error as before and no pass waits for it.
func (p *Pool) publish(c *pooledCluster, job *lookJob, look *Look) {
	if look.Err != nil {
		job.end() // The error may be due to a connection from before a hibernation.
	}
	c.connection = job.connection
	if look.Depth == readNothing && c.Depth == readNothing {
		return // The next pass that requests a result reports the problem with the kubeconfig.
	}
	silence := ""
	if look.Err != nil {
		silence = DescribeError(look.Err)
	}
	isAsBefore := silence != "" && silence == c.silence
	c.silence, c.isSlow = silence, silence != "" && look.Took > patientAfter
	c.noteDone(job)
	if look.Err == nil && look.Depth == ReadAPI {
		c.isPlain = !look.IsOpenShift
	}
	switch {
	case !look.answers(c.Question):
		p.clusters.Ask(c.Cluster, p.Clock.Now()) // A pass has requested more data during the poll.
	case isAsBefore && !c.isAwaited && c.interval > 0:
		p.clusters.Ask(c.Cluster, p.Clock.Now().Add(c.interval))
	default:
		p.Enqueue(c.Cluster, !c.isAwaited && c.interval >= calmInterval)
		c.look, c.isAwaited = look, false
	}
	if !c.isAwaited || c.isSlow {
		delete(p.hurried, c.Cluster)
	}
}

// noteDone stores the results of the actions before a poll.
func (c *pooledCluster) noteDone(job *lookJob) {
	c.made, c.replaced = append(c.made, job.made...), append(c.replaced, job.replaced...)
	c.lastEvicted = job.lastEvicted
	if !job.drained.At.IsZero() {
		job.drained.noteEarlier(c.drained)
		c.drained = job.drained
	}
	if !job.paused.At.IsZero() {
		c.paused = job.paused
	}
	if !job.replacement.At.IsZero() {
		c.replacement = job.replacement
	}
}

// read fills in the requested data.
func (c *ClusterClient) read(ctx context.Context, look *Look) error {
	err := c.Probe(ctx)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	look.Date = c.FirstDate()
	if look.Depth == ReadAPI {
		look.Version, look.IsOpenShift, err = c.ReadVersion(ctx)
		return err
	}
	if look.Depth >= ReadNodes {
		if look.Nodes, err = c.ListNodes(ctx); err != nil {
			return err
		}
	}
	if look.WantsPods {
		// The cluster must not look unreachable because a user has created a very large number of pods.
		look.Pods, look.PodsErr = c.ListWorkerPods(ctx, look.Nodes)
	}
	if look.WantsHealthChecks {
		look.HealthChecks, look.HealthChecksErr = c.ListHealthChecks(ctx)
	}
	if look.WantsOperators && look.Depth < ReadRequests {
		look.Operators, look.OperatorsErr = c.ListOperatorProblems(ctx)
	}
	switch {
	case look.Depth < ReadMachines:
		return nil
	case look.Depth < ReadRequests:
		return c.readMachines(ctx, look)
	}
	if look.Requests, err = c.ListRequests(ctx); IsTooCostly(err) {
		// The cluster must not look unreachable because a user has created a very large number of requests.
		look.RequestsErr = err
		return nil
	} else if err != nil {
		return err
	}
	if err := c.readMachines(ctx, look); err != nil {
		return err
	}
	if look.WantsOperators && look.IsOpenShift {
		look.Operators, look.OperatorsErr = c.ListOperators(ctx)
	}
	return nil
}

// readMachines reads the Machines. At the depth ReadMachines, a missing permission to list them is not an error. No
// machine is terminated in this case.
func (c *ClusterClient) readMachines(ctx context.Context, look *Look) (err error) {
	look.Machines, err = c.ListMachines(ctx)
	if look.HasReadMachines = err == nil; k8serrors.IsForbidden(err) && look.Depth == ReadMachines {
		return nil
	}
	return err
}
