// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

func TestOnlyLongCertificatesAreWarnedOf(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		expires time.Time
		warned  bool
	}{
		"a token causes no warning":                                    {time.Time{}, false},
		"a certificate for an hour causes no warning":                  {now.Add(time.Hour), false},
		"a certificate for a week causes no warning":                   {now.Add(recommendedValidity), false},
		"a certificate for a second more than a week causes a warning": {now.Add(recommendedValidity + time.Second), true},
		"a certificate for a year causes a warning":                    {now.AddDate(1, 0, 0), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &Request{API: &API{Clock: clocktesting.NewFakeClock(now)}, Caller: &authorization.Caller{CertificateExpires: test.expires}}
			if found := r.warnOfCertificate(); len(found) > 0 != test.warned {
				t.Errorf("found %q", found)
			}
		})
	}
}
