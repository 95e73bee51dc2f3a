// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestWhoMayCall(t *testing.T) {
	open, closed := newEnv(t, Config{}), newEnv(t, Config{AccessKeys: []string{"AKIDONE", "AKIDTWO"}, Region: "eu-north-1"})
	header := func(credential string) string {
		return "AWS4-HMAC-SHA256 Credential=" + credential + ", SignedHeaders=host;x-amz-date, Signature=abc"
	}
	for name, test := range map[string]struct {
		rig           *env
		authorization string
		ok            bool
	}{
		"any key with a signature":        {open, header("ANY/20260101/us-east-1/ec2/aws4_request"), true},
		"a call without a signature":      {open, "", false},
		"a call with a password":          {open, "Basic YTpi", false},
		"a signature without a key":       {open, header("/20260101/us-east-1/ec2/aws4_request"), false},
		"a signature without a scope":     {open, header("ANY"), false},
		"a signature for another region":  {open, header("ANY/20260101/us-west-2/ec2/aws4_request"), false},
		"a signature for another service": {open, header("ANY/20260101/us-east-1/s3/aws4_request"), false},
		"a known key":                     {closed, header("AKIDTWO/20260101/eu-north-1/ec2/aws4_request"), true},
		"an unknown key":                  {closed, header("AKIDSIX/20260101/eu-north-1/ec2/aws4_request"), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &env{t: t, url: test.rig.url}
			got := r.callAs(test.authorization, "DescribeInstances")
			if test.ok && got.status != http.StatusOK {
				t.Errorf("answered %+v", got)
			}
			if !test.ok && (got.status != http.StatusForbidden || got.Code != "AuthFailure") {
				t.Errorf("answered %+v", got)
			}
		})
	}
}

func TestEachKeyIsThrottledByItself(t *testing.T) {
	// So slow that no token comes back while the test runs.
	r := newEnv(t, Config{RatePerSecond: 1e-6, Burst: 2})
	for n, status := range []int{200, 200, 503, 503} {
		if got := r.call("DescribeInstances"); got.status != status || (status == 503 && got.Code != "RequestLimitExceeded") {
			t.Errorf("call %d answered %+v", n, got)
		}
	}
	if got := r.callAs(strings.Replace(authorized, "AKIDTEST", "AKIDNEXT", 1), "DescribeInstances"); got.status != http.StatusOK {
		t.Errorf("another key answered %+v", got)
	}
}

func TestAKeyMayCallAgainAsTimePasses(t *testing.T) {
	now := time.Now()
	steps := []struct {
		after time.Duration
		ok    bool
	}{{0, true}, {0, true}, {0, false}, {400 * time.Millisecond, false}, {200 * time.Millisecond, true}, {time.Hour, true}, {0, true}, {0, false}}
	r := newEnv(t, Config{RatePerSecond: 2, Burst: 2})
	for n, step := range steps {
		now = now.Add(step.after)
		if err := r.cloud.admitCaller(authorized, now); (err == nil) != step.ok {
			t.Errorf("step %d: got %v, want admitted %t", n, err, step.ok)
		}
	}
}
