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
		"anybody with a signature":   {open, header("ANY/20260101/us-east-1/ec2/aws4_request"), true},
		"nobody without one":         {open, "", false},
		"nobody with a password":     {open, "Basic YTpi", false},
		"nobody without a key":       {open, header("/20260101/us-east-1/ec2/aws4_request"), false},
		"nobody without a scope":     {open, header("ANY"), false},
		"nobody for another region":  {open, header("ANY/20260101/us-west-2/ec2/aws4_request"), false},
		"nobody for another service": {open, header("ANY/20260101/us-east-1/s3/aws4_request"), false},
		"a known key":                {closed, header("AKIDTWO/20260101/eu-north-1/ec2/aws4_request"), true},
		"no unknown key":             {closed, header("AKIDSIX/20260101/eu-north-1/ec2/aws4_request"), false},
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

func TestTheBucketFillsUpToItsBurst(t *testing.T) {
	now := time.Now()
	steps := []struct {
		after time.Duration
		ok    bool
	}{{0, true}, {0, true}, {0, false}, {400 * time.Millisecond, false}, {200 * time.Millisecond, true}, {time.Hour, true}, {0, true}, {0, false}}
	var b tokenBucket
	for n, step := range steps {
		now = now.Add(step.after)
		var ok bool
		if b, ok = b.takeToken(now, 2, 2); ok != step.ok {
			t.Errorf("step %d: got %v with %+v", n, ok, b)
		}
	}
}
