// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/stopcheck"
)

const (
	// promptLooks are made at once, and patientLooks at clusters that did not answer in time before: they hold up no others.
	promptLooks, patientLooks = 100, 25
	// kubeconfigAge is for how long a kubeconfig is used that works, before it is read again.
	kubeconfigAge = time.Minute
	// patientAfter is how long a look takes that shows that its cluster is slow.
	patientAfter = 2 * time.Second
	// prepareDelay keeps kubeconfigs from being read while a fleet is still told to start: no machine runs as soon as that.
	prepareDelay = 5 * time.Second
	// calmInterval is that of clusters that are only looked after. While passes wait for others, such a look comes late, by as much as its
	// own interval or maxDelay, and it is asked for again after delayStep.
	calmInterval, maxDelay, delayStep = 5 * time.Second, 15 * time.Second, time.Second
	// surveysPerSecond is enough for 10,000 clusters that are surveyed once an hour each.
	surveysPerSecond, surveysAtOnce = 5, 20
)

// Pool looks at clusters beside the passes, which read what is known and never wait for a cluster. It keeps a connection for as long
// as a cluster is awake and answers. Its fields are set before it is used.
type Pool struct {
	Dialer Dialer
	// Clock is the source of the current time.
	Clock clock.PassiveClock
	// ReadKubeconfig reads a Secret of a namespace; what is wrong with it is a *KubeconfigError.
	ReadKubeconfig func(ctx context.Context, namespace, secret string) ([]byte, error)
	// Enqueue has a cluster's pass run soon, and does not block. A calm pass is one that nobody waits for.
	Enqueue func(cluster types.NamespacedName, isCalm bool)

	prompt, patient workqueue.TypedDelayingInterface[types.NamespacedName]
	mu              sync.Mutex
	clusters        map[types.NamespacedName]*pooledCluster
	// hurried are clusters for which a pass waits, but for those that were slow before.
	hurried map[types.NamespacedName]bool
	// surveys limits how many there are, so that a fleet which is stopped at once is not read from end to end before.
	surveys flowcontrol.PassiveRateLimiter
	counts  PoolCounts
}

// PoolCounts are looks, by whether the cluster has answered.
type PoolCounts struct {
	Answers, Silences float64
}

// NewPool returns a pool that dials nobody before it is started.
func NewPool(d Dialer, c clock.PassiveClock) *Pool {
	return &Pool{
		Dialer: d, Clock: c, clusters: map[types.NamespacedName]*pooledCluster{}, hurried: map[types.NamespacedName]bool{},
		prompt: workqueue.NewTypedDelayingQueue[types.NamespacedName](), patient: workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		surveys: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(surveysPerSecond, surveysAtOnce, c),
	}
}

// KubeconfigError says why there is no kubeconfig to dial with.
type KubeconfigError struct{ Message string }

// Error implements error.
func (e *KubeconfigError) Error() string { return e.Message }

// Depth is how much of a cluster is read.
type Depth int

// The depths; each has what the ones before have. The first only prepares the connection and dials nobody.
const (
	readNothing Depth = iota
	ReadAPI
	ReadNodes
	ReadMachines
	ReadRequests
)

// Question is what a pass wants to know of a cluster.
type Question struct {
	Cluster types.NamespacedName
	// Secret has the kubeconfig.
	Secret string
	// WakeUp is when the cluster's last resume began; a connection from before is of no use.
	WakeUp time.Time
	Depth  Depth
	// WantsOperators asks for the ClusterOperators of a cluster of OpenShift, too; only beside the certificate requests.
	WantsOperators bool
	// WantsPods asks for the pods of workers, too.
	WantsPods bool
	// WantsSurvey asks for what a stop may run into, too, if there is room for that now.
	WantsSurvey bool
}

// Look is what was found at a cluster.
type Look struct {
	Question
	// At is when it began, and Took how long it took.
	At   time.Time
	Took time.Duration
	// Err is why the cluster does not answer.
	Err error
	// Date is the time by the cluster's own clock; zero if it has not told.
	Date  time.Time
	Nodes []hibernation.ObservedNode
	// Requests are certificate requests, and RequestsErr says why there are none to judge.
	Requests    []certificatesv1.CertificateSigningRequest
	RequestsErr error
	Machines
	// HasReadMachines says that there are no others.
	HasReadMachines bool
	// Version is that of an OpenShift cluster; empty if it is none or its version may not be read. Only looks at the API read it.
	Version string
	// Approvals are what became of those that were handed in before.
	Approvals []Approval
	// Replaced are the names of Machines that were deleted since a pass was told, and Replacement is what became of the last attempt.
	Replaced    []string
	Replacement Replacement
	// Pods are those of workers, and PodsErr says why there are none to see.
	Pods    hibernation.WorkerPods
	PodsErr error
	// Drained is what became of the last attempt to cordon, uncordon or evict.
	Drained DrainResult
	// Operators are ClusterOperators, and OperatorsErr says why there are none to see.
	Operators    []hibernation.ObservedOperator
	OperatorsErr error
	// Survey is what a stop may run into; nil if that was not looked for.
	Survey *stopcheck.Survey
}

// Replacement is an attempt to have Machines made anew.
type Replacement struct {
	At  time.Time
	Err error
}

// Approval is what became of the approval of a certificate request. One that was decided, changed or deleted since is no error.
type Approval struct {
	Request *certificatesv1.CertificateSigningRequest
	IsMade  bool
	Err     error
}

// pooledCluster is what is known and wanted of one cluster. The lock of its pool guards it.
type pooledCluster struct {
	Question
	// look is one that no pass has seen yet; nil if there is none. silence describes the last one if there was no answer.
	look    *Look
	silence string
	isSlow  bool
	// isPlain says that the cluster is none of OpenShift.
	isPlain bool
	// due is when it is looked at next; zero is never. Then interval says when again while it is silent as before.
	due      time.Time
	interval time.Duration
	// isAwaited says that a pass has ended to wait for the answer, and isLooking that it is being looked for.
	isAwaited, isLooking bool
	// approvals are to be made before the next look, and made are what became of them.
	approvals []certificatesv1.CertificateSigningRequest
	made      []Approval
	// toReplace are Machines to be deleted before the next look, replaced are those that were, and replacement is the last attempt.
	toReplace   []hibernation.ReplaceableMachine
	replaced    []string
	replacement Replacement
	// toDrain is to be done before the next look, drained is the last attempt, and lastEvicted the pod whose turn it was last.
	toDrain     Drain
	drained     DrainResult
	lastEvicted string
	connection
}

// connection is with a cluster that has answered; a look takes it for as long as it lasts.
type connection struct {
	client       *ClusterClient
	kubeconfig   []byte
	kubeconfigAt time.Time
	wakeUp       time.Time
}

func (c *connection) end() {
	if c.client != nil {
		c.client.Close()
	}
	*c = connection{}
}

// RequestLook returns an answer that no pass has seen yet; false if the pass has to wait for one.
func (p *Pool) RequestLook(q Question) (Look, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.register(q)
	if c.look != nil && c.look.answers(q) {
		seen := *c.look
		seen.Approvals, c.made, c.look = c.made, nil, nil
		seen.Replaced, seen.Replacement, c.replaced = c.replaced, c.replacement, nil
		seen.Drained = c.drained
		c.WantsSurvey = false
		return seen, true
	}
	p.hurry(c)
	return Look{}, false
}

// AskFurther asks for what a look has not read. The Machines that it told of are told once more, by the answer: the pass ends without a report.
func (p *Pool) AskFurther(q Question, seen Look) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.register(q)
	c.replaced = append(seen.Replaced, c.replaced...)
	p.hurry(c)
}

func (p *Pool) register(q Question) *pooledCluster {
	c := p.clusters[q.Cluster]
	if c == nil {
		c = &pooledCluster{}
		p.clusters[q.Cluster] = c
	}
	c.Question = q
	return c
}

// hurry has a cluster looked at now, because a pass waits for it.
func (p *Pool) hurry(c *pooledCluster) {
	if c.isAwaited = true; !c.isSlow {
		p.hurried[c.Cluster] = true
	}
	p.want(c, p.Clock.Now())
}

// Prepare has the kubeconfig of a cluster read that is going to be asked about, so that this takes no time then.
func (p *Pool) Prepare(q Question) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clusters[q.Cluster]; c != nil && c.Secret == q.Secret && c.WakeUp.Equal(q.WakeUp) {
		return // It is prepared, or is about to be.
	}
	q.Depth = readNothing
	p.want(p.register(q), p.Clock.Now().Add(prepareDelay))
}

func (l *Look) answers(q Question) bool {
	return l.Secret == q.Secret && l.WakeUp.Equal(q.WakeUp) && l.Depth >= q.Depth &&
		(l.WantsSurvey || !q.WantsSurvey) && (l.WantsPods || !q.WantsPods) && (l.WantsOperators || !q.WantsOperators)
}

// IsPlain reports whether a cluster that has answered is none of OpenShift.
func (p *Pool) IsPlain(cluster types.NamespacedName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clusters[cluster]
	return c != nil && c.isPlain
}

// Watch has a cluster looked at again after an interval, and enqueued unless it is silent as before.
func (p *Pool) Watch(cluster types.NamespacedName, interval time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clusters[cluster]; c != nil {
		c.interval = interval
		p.want(c, p.Clock.Now().Add(interval))
	}
}

// Approve has certificate requests approved, and the cluster looked at after that.
func (p *Pool) Approve(cluster types.NamespacedName, requests []certificatesv1.CertificateSigningRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clusters[cluster]; c != nil {
		c.approvals = append(c.approvals, requests...)
		p.hurry(c)
	}
}

// Replace has Machines deleted, and the cluster looked at after that.
func (p *Pool) Replace(cluster types.NamespacedName, machines []hibernation.ReplaceableMachine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clusters[cluster]; c != nil {
		c.toReplace = machines
		p.hurry(c)
	}
}

// Drain has nodes cordoned or uncordoned, and pods evicted, and the cluster looked at after that. It takes the place of what was to be done
// before, and attempts are some time apart: what a budget keeps is asked for again.
func (p *Pool) Drain(cluster types.NamespacedName, d Drain) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clusters[cluster]
	if c == nil {
		return
	}
	if c.toDrain = d; !d.isEmpty() {
		due := p.Clock.Now()
		if next := c.drained.At.Add(drainPause); next.After(due) {
			due = next
		}
		p.want(c, due)
	}
}

// Rest ends the connection with a cluster that is not to be dialled, or is gone.
func (p *Pool) Rest(cluster types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clusters[cluster]; c != nil {
		c.end()
		delete(p.clusters, cluster)
		delete(p.hurried, cluster)
	}
}

// ReadCounts returns how many looks there were so far.
func (p *Pool) ReadCounts() PoolCounts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// want puts a cluster into the queue of its kind; the earlier of two times counts.
func (p *Pool) want(c *pooledCluster, due time.Time) {
	if c.due.IsZero() || due.Before(c.due) {
		c.due = due
	}
	queue := p.prompt
	if c.isSlow {
		queue = p.patient
	}
	queue.AddAfter(c.Cluster, due.Sub(p.Clock.Now()))
}

// Start implements manager.Runnable. It returns when ctx ends, with all that it has started.
func (p *Pool) Start(ctx context.Context) error {
	var work sync.WaitGroup
	for queue, count := range map[workqueue.TypedDelayingInterface[types.NamespacedName]]int{p.prompt: promptLooks, p.patient: patientLooks} {
		for range count {
			work.Go(func() { p.work(ctx, queue) })
		}
	}
	<-ctx.Done()
	p.prompt.ShutDown()
	p.patient.ShutDown()
	work.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.clusters {
		c.end()
	}
	return nil
}

func (p *Pool) work(ctx context.Context, queue workqueue.TypedDelayingInterface[types.NamespacedName]) {
	for {
		name, isOver := queue.Get()
		if isOver {
			return
		}
		if job := p.take(name); job != nil && ctx.Err() == nil {
			p.publish(ctx, job, p.lookAt(ctx, job))
		}
		queue.Done(name)
	}
}

// lookJob is one look at a cluster, with what it was handed.
type lookJob struct {
	connection
	cluster   *pooledCluster
	question  Question
	approvals []certificatesv1.CertificateSigningRequest
	made      []Approval
	toReplace []hibernation.ReplaceableMachine
	replaced  []string
	// replacement is zero if none was tried.
	replacement Replacement
	toDrain     Drain
	drained     DrainResult
	lastEvicted string
}

func (p *Pool) take(name types.NamespacedName) *lookJob {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clusters[name]
	if c == nil || c.due.IsZero() || c.isLooking {
		return nil
	}
	now := p.Clock.Now()
	if c.due.After(now) {
		p.want(c, c.due)
		return nil
	}
	if p.givesWay(c, now) {
		p.prompt.AddAfter(name, delayStep)
		return nil
	}
	job := &lookJob{connection: c.connection, cluster: c, question: c.Question, approvals: c.approvals, toReplace: c.toReplace, toDrain: c.toDrain, lastEvicted: c.lastEvicted}
	c.toDrain = Drain{}
	c.due, c.isLooking, c.approvals, c.toReplace, c.connection, c.WantsSurvey = time.Time{}, true, nil, nil, connection{}, false
	return job
}

// givesWay reports whether a look that is due comes later, because nobody waits for it and passes wait for others.
func (p *Pool) givesWay(c *pooledCluster, now time.Time) bool {
	return len(p.hurried) > 0 && !c.isAwaited && !c.isSlow && c.interval >= calmInterval && now.Sub(c.due) < min(c.interval, maxDelay)
}

// lookAt reads what was asked. Only one look at a cluster is made at any time.
func (p *Pool) lookAt(ctx context.Context, job *lookJob) *Look {
	ctx, cancel := context.WithTimeout(ctx, LookTimeout)
	defer cancel()
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
	}
	if look.Err == nil && look.Depth > readNothing {
		look.Err = client.read(ctx, look)
	}
	look.Took = p.Clock.Since(look.At)
	if look.Err == nil && look.WantsSurvey && p.surveys.TryAccept() {
		look.Survey = client.ReadSurvey(ctx, look)
	}
	if look.Err != nil {
		// Half of what was to be read is nothing to decide by: a node that is missing in the list would look gone.
		look.Nodes, look.Requests, look.Machines, look.HasReadMachines, look.Pods = nil, nil, Machines{}, false, hibernation.WorkerPods{}
	}
	return look
}

// replace ends with the first error: what is left is tried again by a later pass.
func (j *lookJob) replace(ctx context.Context, client *ClusterClient, now time.Time) {
	for _, m := range j.toReplace {
		j.replacement = Replacement{At: now, Err: client.ReplaceMachine(ctx, m)}
		if j.replacement.Err != nil {
			return
		}
		j.replaced = append(j.replaced, m.Name)
	}
}

// ignoreDecided drops the errors of requests that were decided, changed or deleted since they were judged.
func ignoreDecided(err error) error {
	if k8serrors.IsConflict(err) || k8serrors.IsNotFound(err) {
		return nil
	}
	return err
}

// connect keeps the connection of a cluster that answers, and makes another one after an error, a wake-up or a new kubeconfig.
func (p *Pool) connect(ctx context.Context, job *lookJob, now time.Time) (*ClusterClient, error) {
	isSame := job.client != nil && job.wakeUp.Equal(job.question.WakeUp)
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
	client, err := p.Dialer.Dial(kubeconfig)
	if err != nil {
		return nil, err
	}
	job.connection = connection{client: client, kubeconfig: kubeconfig, kubeconfigAt: now, wakeUp: job.question.WakeUp}
	return client, nil
}

// publish keeps a look, and enqueues the cluster if its pass waits for it or has something new to report.
func (p *Pool) publish(ctx context.Context, job *lookJob, look *Look) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := job.cluster
	c.isLooking = false
	isForgotten := ctx.Err() != nil || p.clusters[job.question.Cluster] != c
	if look.Err != nil || isForgotten {
		job.end() // After a hibernation nothing of an old connection can be trusted.
	}
	switch {
	case look.Depth == readNothing: // The cluster itself was not asked.
	case look.Err == nil:
		p.counts.Answers++
	default:
		p.counts.Silences++
	}
	if isForgotten {
		return
	}
	c.connection = job.connection
	if look.Depth == readNothing && c.Depth == readNothing {
		return // What is wrong with a kubeconfig is told to the pass that asks.
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
		p.want(c, p.Clock.Now()) // The pass has asked for more meanwhile.
	case isAsBefore && !c.isAwaited && c.interval > 0:
		p.want(c, p.Clock.Now().Add(c.interval))
	default:
		p.Enqueue(c.Cluster, !c.isAwaited && c.interval >= calmInterval)
		c.look, c.isAwaited = look, false
	}
	if !c.isAwaited || c.isSlow {
		delete(p.hurried, c.Cluster)
	}
	if !c.due.IsZero() {
		p.want(c, c.due) // It may have been taken from a queue while it was looked at.
	}
}

// noteDone keeps what a look has done before it.
func (c *pooledCluster) noteDone(job *lookJob) {
	c.made, c.replaced = append(c.made, job.made...), append(c.replaced, job.replaced...)
	c.lastEvicted = job.lastEvicted
	if !job.drained.At.IsZero() {
		job.drained.noteEarlier(c.drained)
		c.drained = job.drained
	}
	if !job.replacement.At.IsZero() {
		c.replacement = job.replacement
	}
}

// read fills in what the question is about.
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
		// Whoever fills a cluster with pods must not make it look unreachable.
		look.Pods, look.PodsErr = c.ListWorkerPods(ctx, look.Nodes)
	}
	switch {
	case look.Depth < ReadMachines:
		return nil
	case look.Depth < ReadRequests:
		return c.readMachines(ctx, look)
	}
	if look.Requests, err = c.ListRequests(ctx); IsTooCostly(err) {
		// Whoever fills a cluster with requests must not make it look unreachable.
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

// readMachines knows of none where the kubeconfig's user may not list them before a hibernation: nothing is terminated then.
func (c *ClusterClient) readMachines(ctx context.Context, look *Look) (err error) {
	look.Machines, err = c.ListMachines(ctx)
	if look.HasReadMachines = err == nil; k8serrors.IsForbidden(err) && look.Depth == ReadMachines {
		return nil
	}
	return err
}
