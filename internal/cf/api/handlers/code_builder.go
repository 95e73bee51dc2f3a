// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

const (
	// maxCodeBytes limits the code of one package. uploadTimeout limits the duration of its upload. stallTimeout limits
	// the time without progress.
	maxCodeBytes  = 1 << 30
	uploadTimeout = 10 * time.Minute
	stallTimeout  = 14 * time.Second
	// maxRefusalBytes limits the part of a builder's error that the client receives.
	maxRefusalBytes = 1 << 10
)

// CodeBuilder sends code to an external builder, which creates droplets from it.
type CodeBuilder struct {
	address   *url.URL
	tokenFile string
	http      *http.Client
}

// NewCodeBuilder returns nil if address is empty, which means that no builder is configured. tokenFile may also be
// empty.
func NewCodeBuilder(address, tokenFile string) (*CodeBuilder, error) {
	if address == "" {
		return nil, nil
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.User != nil || parsed.RawQuery != "" {
		return nil, errors.New("expected --builder-url such as https://builder.example.svc/code, without a user name or query parameters; found another URL; correct the URL")
	}
	return &CodeBuilder{address: parsed, tokenFile: tokenFile, http: &http.Client{
		// Redirects are not followed, because the token must only be sent to the configured address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// upload sends the code of a package to the builder unchanged.
func (b *CodeBuilder) upload(ctx context.Context, to *korifiv1alpha1.CFPackage, code io.Reader, from *http.Request) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, b.address.JoinPath(to.Namespace, to.Name).String(), code)
	if err != nil {
		return fmt.Errorf("create a request to the builder: %w", err)
	}
	request.ContentLength = from.ContentLength
	request.Header.Set("Content-Type", from.Header.Get("Content-Type"))
	if b.tokenFile != "" {
		token, err := os.ReadFile(b.tokenFile)
		if err != nil {
			return apierrors.NewServiceUnavailable("the code was not sent to the builder, because its token cannot be read; ask the platform team", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	answer, err := b.http.Do(request)
	if err != nil {
		return apierrors.NewServiceUnavailable("the builder did not accept the code; try again, and if the error persists, ask the platform team", err)
	}
	defer func() { _ = answer.Body.Close() }()
	switch answer.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return nil
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		// If the read fails, the client receives the part that was read.
		said, _ := io.ReadAll(io.LimitReader(answer.Body, maxRefusalBytes))
		return apierrors.NewUnprocessableEntity("the builder refused the code: " + strings.TrimSpace(string(said)))
	default:
		return apierrors.NewServiceUnavailable("the builder did not accept the code; try again, and if the error persists, ask the platform team",
			fmt.Errorf("expected 2xx, found %d", answer.StatusCode))
	}
}

// movingReader extends the read deadline before each read, so a transfer continues while it makes progress.
type movingReader struct {
	io.Reader
	keepReading func(time.Time) error
	now         func() time.Time
}

// Read implements io.Reader.
func (r movingReader) Read(into []byte) (int, error) {
	if err := r.keepReading(r.now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return r.Reader.Read(into)
}

// uploadCode sends the code of a package to the builder. It then waits until the package has the image that contains
// the code, or until maxHold has passed.
func uploadCode(ctx context.Context, r *Request) (Response, error) {
	to, err := r.uploadablePackage(ctx)
	if err != nil {
		return Response{}, err
	}
	release, err := r.Uploads.acquire(ctx, r.Caller.Name, func() error { return nil })
	if err != nil {
		return Response{}, err
	}
	defer release()
	// An upload may take longer than other requests. If the client disconnects, reading the body fails, which ends the
	// upload.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), uploadTimeout)
	defer cancel()
	if err := r.Deadlines.SetWriteDeadline(r.Clock.Now().Add(uploadTimeout + maxHold)); err != nil {
		return Response{}, fmt.Errorf("extend the deadline of the upload: %w", err)
	}
	code := movingReader{Reader: http.MaxBytesReader(nil, r.HTTP.Body, maxCodeBytes), keepReading: r.Deadlines.SetReadDeadline, now: r.Clock.Now}
	if err := r.Builder.upload(ctx, to, code, r.HTTP); err != nil {
		return Response{}, err
	}
	holdCtx, cancelHold := context.WithTimeout(ctx, maxHold)
	defer cancelHold()
	err = r.Store.WatchUntil(holdCtx, to.Name, func() (bool, error) {
		newer, err := r.Store.GetPackage(ctx, r.Caller, to.Name)
		if err == nil {
			to = newer
		}
		return to.Spec.Source.Registry.Image != "", err
	})
	return present(r, presenter.ForPackage, to, err)
}

// uploadablePackage returns the package in the path, if the package still needs code and the caller may patch the
// package.
func (r *Request) uploadablePackage(ctx context.Context) (*korifiv1alpha1.CFPackage, error) {
	to, err := r.Store.GetPackage(ctx, r.Caller, r.guid())
	if err != nil {
		return nil, err
	}
	may, err := r.Caller.May(ctx, authorization.Permission{Namespace: to.Namespace, Verb: "patch", Resource: repositories.PackagesResource})
	switch {
	case err != nil:
		return nil, err
	case !may:
		return nil, apierrors.NewNotAuthorized(nil)
	case r.Builder == nil || to.Spec.Type != korifiv1alpha1.BitsPackage || to.Spec.Source.Registry.Image != "":
		return nil, apierrors.NewUnprocessableEntity(
			"expected a configured builder, and a package of type bits that has no code yet, found no builder or another package; create a new package")
	case r.HTTP.ContentLength > maxCodeBytes:
		return nil, apierrors.NewUnprocessableEntity(fmt.Sprintf("expected code of at most %d MiB, found more; leave files out with .cfignore", maxCodeBytes>>20))
	default:
		return to, nil
	}
}
