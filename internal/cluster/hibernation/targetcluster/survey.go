// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/torpor-dev/torpor/internal/httpguard"
	stopcheck "github.com/torpor-dev/torpor/internal/stop/check"
)

// surveyTimeout limits all reads of a survey, because a stop may wait for it.
const surveyTimeout = 3 * time.Second

// ReadSurvey reads the problems that a stop of the cluster may meet, after a poll. Parts that cannot be read are
// skipped and listed in the survey.
func (c *ClusterClient) ReadSurvey(ctx context.Context, look *Look) *stopcheck.Survey {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	clock := look.Date
	if clock.IsZero() {
		clock = look.At
	}
	s := stopcheck.NewSurvey(clock)
	s.AddServingCertificate(c.date.expiry)
	for _, list := range stopcheck.Lists() {
		if s.Skips(list) || look.PausesHealthChecks && slices.Contains(stopcheck.HealthCheckPaths(), list.Path) {
			continue
		}
		err := c.listSelected(ctx, listQuery{path: list.Path, selector: list.Selector}, func(item []byte) error {
			s.AddItem(list, item)
			return nil
		})
		if err == nil || k8serrors.IsNotFound(err) { // A kind that is not served has no items.
			continue
		}
		s.SkipList(list)
		if !IsLasting(err) && !k8serrors.IsForbidden(err) {
			s.NoteCut()
		}
	}
	for _, name := range s.Services() {
		if service, err := c.readObject(ctx, stopcheck.ServicePath(name)); err == nil {
			s.AddService(name, service)
		}
	}
	if signer, err := c.readObject(ctx, stopcheck.SignerPath); err == nil {
		s.AddSigner(signer)
	}
	if status, err := c.readObject(ctx, stopcheck.AutoscalerStatusPath); err == nil {
		s.AddAutoscalerStatus(status)
	}
	if ctx.Err() != nil {
		s.NoteCut()
	}
	return s
}

// readObject reads one object, unless its size exceeds any plausible one.
func (c *ClusterClient) readObject(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.callTimeout)
	defer cancel()
	body, err := c.rest.Get().AbsPath(path).MaxRetries(0).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("query the server: %w", err)
	}
	defer func() { _ = body.Close() }()
	object, err := io.ReadAll(io.LimitReader(body, stopcheck.MaxItemBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case len(object) > stopcheck.MaxItemBytes:
		return nil, httpguard.ErrAnswerTooLarge
	}
	return object, nil
}
