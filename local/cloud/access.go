// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
)

// admitCaller checks who calls and how often. Signatures are not verified: the cloud knows no secrets.
func (c *Cloud) admitCaller(authorization string, now time.Time) error {
	key, err := c.accessKey(authorization)
	if err != nil {
		return err
	}
	if c.config.RatePerSecond == 0 {
		return nil
	}
	if c.limiters[key] == nil {
		c.limiters[key] = rate.NewLimiter(rate.Limit(c.config.RatePerSecond), c.config.Burst)
	}
	if !c.limiters[key].AllowN(now, 1) {
		return ec2query.NewErrorf(ec2query.RequestLimitExceeded, "Request limit exceeded.")
	}
	return nil
}

// accessKey reads the access key id from a header as
// "AWS4-HMAC-SHA256 Credential=<key>/<date>/<region>/ec2/aws4_request, SignedHeaders=…, Signature=…".
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
	if len(scope) != 5 || scope[0] == "" || scope[3] != "ec2" || scope[4] != "aws4_request" {
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
