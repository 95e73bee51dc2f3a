// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
)

// HTTPHandler serves the EC2 Query API on /, node groups of EKS under /clusters/, and the admin endpoints under
// /_local/. Serve it on a loopback address only.
func (c *Cloud) HTTPHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", c.serveCall)
	mux.HandleFunc("GET /{$}", c.serveCall)
	c.addNodeGroupRoutes(mux)
	c.addAdminRoutes(mux)
	return mux
}

func (c *Cloud) findAction(name string) func(ec2query.Request, time.Time) (ec2query.Answer, error) {
	return map[string]func(ec2query.Request, time.Time) (ec2query.Answer, error){
		"CreateTags":                c.createTags,
		"DeleteTags":                c.deleteTags,
		"DescribeAutoScalingGroups": c.describeAutoScalingGroups,
		"DescribeInstances":         c.describeInstances,
		"DescribeTags":              c.describeTags,
		"ModifyInstanceAttribute":   c.modifyInstanceAttribute,
		"ResumeProcesses":           c.resumeProcesses,
		"RunInstances":              c.runInstances,
		"StartInstances":            c.startInstances,
		"StopInstances":             c.stopInstances,
		"SuspendProcesses":          c.suspendProcesses,
		"TerminateInstances":        c.terminateInstances,
		"UpdateAutoScalingGroup":    c.updateAutoScalingGroup,
	}[name]
}

func (c *Cloud) serveCall(w http.ResponseWriter, r *http.Request) {
	q, err := ec2query.ReadRequest(w, r)
	if err != nil {
		ec2query.WriteError(w, err)
		return
	}
	body, delay, err := c.handleCall(q, r.Header.Get("Authorization"), time.Now())
	waitFor(r.Context(), delay)
	switch {
	case err != nil && q.IsAutoScaling():
		ec2query.WriteAutoScalingError(w, err)
		return
	case err != nil:
		ec2query.WriteError(w, err)
		return
	}
	ec2query.WriteAnswer(w, q.Action, body)
}

// handleCall performs and counts one call. Its changes are written to the disk before it returns.
func (c *Cloud) handleCall(q ec2query.Request, authorization string, now time.Time) (ec2query.Answer, time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counted := q.Action
	if dry, _ := q.ParseFlag("DryRun"); dry {
		counted += ".dryRun"
	}
	if c.findAction(q.Action) == nil {
		counted = "(unknown)"
	}
	c.calls[counted]++
	body, delay, err := c.dispatchCall(q, authorization, now)
	if err != nil {
		c.calls[counted+".errors"]++
	}
	return body, delay, err
}

func (c *Cloud) dispatchCall(q ec2query.Request, authorization string, now time.Time) (ec2query.Answer, time.Duration, error) {
	if c.closed {
		return nil, 0, ec2query.NewErrorf(ec2query.Unavailable, "The cloud is closed.")
	}
	if err := c.admitCaller(authorization, q.Action, now); err != nil {
		return nil, 0, err
	}
	if q.Action == "" {
		return nil, 0, ec2query.NewErrorf(ec2query.MissingParameter, "The request must contain the parameter Action")
	}
	act := c.findAction(q.Action)
	if act == nil {
		return nil, 0, ec2query.NewErrorf(ec2query.InvalidAction, "The action %s is not valid for this web service.", q.Action)
	}
	dry, err := q.ParseFlag("DryRun")
	if err != nil {
		return nil, 0, err
	}
	met := c.useCallFault(q.Action, slices.Concat(q.ListValues("InstanceId"), q.ListValues("ResourceId")), dry)
	delay := time.Duration(met.Delay)
	if err := met.asError(); err != nil {
		return nil, delay, err
	}
	// As in EC2, the response to a successful dry run is an error. The state of instances does not matter.
	if dry {
		return nil, delay, ec2query.NewErrorf(ec2query.DryRunOperation, "Request would have succeeded, but DryRun flag is set.")
	}
	body, err := act(q, now)
	return body, delay, err
}

// waitFor returns after the delay, or once the caller has disconnected.
func waitFor(ctx context.Context, delay time.Duration) {
	if delay == 0 {
		return
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// admitCaller checks the access key and its rate limit. Signatures are not verified, because the cloud has no secret
// keys.
func (c *Cloud) admitCaller(authorization, action string, now time.Time) error {
	key, err := c.accessKey(authorization)
	if err != nil {
		return err
	}
	limits := []callLimit{}
	if c.config.RatePerSecond > 0 {
		limits = append(limits, callLimit{"", c.config.RatePerSecond, c.config.Burst})
	}
	if c.config.EC2Limits {
		limits = append(limits, limitOf(action))
	}
	for _, limit := range limits {
		bucket := key + " " + limit.kind
		if c.limiters[bucket] == nil {
			c.limiters[bucket] = rate.NewLimiter(rate.Limit(limit.perSecond), limit.burst)
		}
		if !c.limiters[bucket].AllowN(now, 1) {
			return ec2query.NewErrorf(ec2query.RequestLimitExceeded, "Request limit exceeded.")
		}
	}
	return nil
}

// callLimit is a token bucket: the number of tokens added per second, and the maximum number.
type callLimit struct {
	kind      string
	perSecond float64
	burst     int
}

// limitOf returns EC2's limit for a kind of call, per account and region.
func limitOf(action string) callLimit {
	switch {
	case strings.HasPrefix(action, "Describe"):
		return callLimit{"describe", 20, 100}
	case action == "RunInstances" || action == "StartInstances":
		return callLimit{action, 2, 5}
	default:
		return callLimit{"change", 5, 50}
	}
}

// accessKey reads the access key id from a header of the form "AWS4-HMAC-SHA256
// Credential=<key>/<date>/<region>/<service>/aws4_request, SignedHeaders=…, Signature=…".
func (c *Cloud) accessKey(authorization string) (string, error) {
	parameters, ok := strings.CutPrefix(authorization, "AWS4-HMAC-SHA256 ")
	if !ok {
		return "", ec2query.NewErrorf(ec2query.AuthFailure, "AWS was not able to validate the provided access credentials: the Authorization header must be an AWS4-HMAC-SHA256 signature")
	}
	var scope []string
	for parameter := range strings.SplitSeq(parameters, ",") {
		if credential, ok := strings.CutPrefix(strings.TrimSpace(parameter), "Credential="); ok {
			scope = strings.Split(credential, "/")
		}
	}
	if len(scope) != 5 || scope[0] == "" || !slices.Contains([]string{"ec2", "autoscaling", "eks"}, scope[3]) || scope[4] != "aws4_request" {
		return "", ec2query.NewErrorf(ec2query.AuthFailure, "AWS was not able to validate the provided access credentials: the Credential must be <key>/<date>/<region>/ec2/aws4_request")
	}
	if scope[2] != c.config.Region {
		return "", ec2query.NewErrorf(ec2query.AuthFailure, "Credential should be scoped to a valid region: this cloud is %q, the request is signed for %q", c.config.Region, scope[2])
	}
	if len(c.config.AccessKeys) > 0 && !slices.Contains(c.config.AccessKeys, scope[0]) {
		return "", ec2query.NewErrorf(ec2query.AuthFailure, "AWS was not able to validate the provided access credentials")
	}
	return scope[0], nil
}
