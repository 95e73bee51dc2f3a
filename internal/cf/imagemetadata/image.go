// SPDX-License-Identifier: Apache-2.0

package imagemetadata

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/authn/kubernetes"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/opencontainers/go-digest"
	corev1 "k8s.io/api/core/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/buildinfo"
	"github.com/torpor-dev/torpor/internal/cf/build"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

const (
	// maxAnswerBytes and maxAnswerObjects are larger than real manifests and configurations of images. maxImageBytes
	// limits all responses about one image combined. The number of JSON objects is limited because an empty object
	// takes three bytes, but fifty times as many once it is decoded.
	maxAnswerBytes, maxAnswerObjects, maxImageBytes = 512 << 10, 10_000, 2 << 20
	// maxPorts is the maximum number of ports of an image that are used. App manifests have the same limit.
	maxPorts = 10
	// maxUserLength limits the part of an image's user that is shown.
	maxUserLength = 32
)

// errNoImage means that the image name refers to content that is not an image.
var errNoImage = errors.New("the registry's response is not an image")

// errUnreadableSecret means that an image pull Secret cannot be read or is invalid. Its content is not shown.
var errUnreadableSecret = errors.New("a Secret of spec.source.registry.imagePullSecrets cannot be read")

// imageReader reads the metadata of an image from its registry.
type imageReader struct {
	policy    Policy
	transport http.RoundTripper
}

// read returns the metadata of an image. Messages about failures contain only Torpor's own text, because a server
// chosen by one tenant must not be able to send text to other tenants.
func (r imageReader) read(ctx context.Context, named reference.Named, secrets []corev1.Secret) build.ImageAnswer {
	descriptor, err := r.fetch(ctx, named, secrets)
	if err != nil {
		return explainFailure(err, named)
	}
	if !descriptor.MediaType.IsImage() && !descriptor.MediaType.IsIndex() {
		// A digest does not prove that the content is an image: a web page has one, too.
		return explainFailure(errNoImage, named)
	}
	pinned, err := pin(named, descriptor.Digest)
	if err != nil {
		return explainFailure(err, named)
	}
	answer := build.ImageAnswer{Image: pinned}
	config, err := readConfig(descriptor)
	if err != nil {
		answer.Message = "the image's ports and user are unknown: " + explainFailure(err, named).Message
		return answer
	}
	answer.Ports, answer.Message = listPorts(config.Config.ExposedPorts), describeUser(config.Config.User)
	return answer
}

func (r imageReader) fetch(ctx context.Context, named reference.Named, secrets []corev1.Secret) (*remote.Descriptor, error) {
	var options []name.Option
	if r.policy.plain.Includes(registryHost(named)) {
		options = append(options, name.Insecure)
	}
	ref, err := name.ParseReference(reference.TagNameOnly(named).String(), options...)
	if err != nil {
		return nil, fmt.Errorf("read the name: %w", err)
	}
	keychain, err := kubernetes.NewFromPullSecrets(ctx, secrets)
	if err != nil {
		return nil, errUnreadableSecret
	}
	return remote.Get(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(keychain), remote.WithUserAgent(buildinfo.UserAgent("torpor")),
		remote.WithTransport(httpguard.LimitTransport(&countedTransport{base: r.transport}, maxAnswerBytes, maxImageBytes)),
		// A failure is reported without a retry, because the registry is contacted only once for each build.
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
}

// registryHost returns the host of an image's registry without its port.
func registryHost(named reference.Named) string {
	domain := reference.Domain(named)
	if host, _, err := net.SplitHostPort(domain); err == nil {
		return host
	}
	return strings.Trim(domain, "[]")
}

// pin adds the digest to an image name. Nodes ignore a tag next to a digest, so the tag is kept only for users.
func pin(named reference.Named, found v1.Hash) (string, error) {
	if _, isPinned := named.(reference.Digested); isPinned {
		return named.String(), nil
	}
	pinned, err := reference.WithDigest(reference.TagNameOnly(named), digest.Digest(found.String()))
	if err != nil {
		return "", fmt.Errorf("name the image by its digest: %w", err)
	}
	return pinned.String(), nil
}

// readConfig reads the configuration of an image, or of one image in a multi-platform index.
func readConfig(descriptor *remote.Descriptor) (*v1.ConfigFile, error) {
	image, err := descriptor.Image()
	if descriptor.MediaType.IsIndex() {
		image, err = chooseImage(descriptor)
	}
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return config, nil
}

// chooseImage returns the image for the manager's architecture, or else the first image for Linux. In practice, the
// images in an index differ in their programs, but not in their ports.
func chooseImage(descriptor *remote.Descriptor) (v1.Image, error) {
	index, err := descriptor.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	isFor := func(architecture string) func(v1.Descriptor) bool {
		return func(d v1.Descriptor) bool {
			return d.Platform != nil && d.Platform.OS == "linux" && (architecture == "" || d.Platform.Architecture == architecture)
		}
	}
	at := slices.IndexFunc(manifest.Manifests, isFor(runtime.GOARCH))
	if at < 0 {
		at = slices.IndexFunc(manifest.Manifests, isFor(""))
	}
	if at < 0 {
		return nil, errors.New("expected an image for linux, found none")
	}
	return index.Image(manifest.Manifests[at].Digest)
}

// listPorts returns the first maxPorts TCP ports of EXPOSE instructions in ascending order, because an image does not
// store their original order.
func listPorts(exposed map[string]struct{}) []int32 {
	var ports []int32
	for text := range exposed {
		number, protocol, _ := strings.Cut(text, "/")
		if port, err := strconv.ParseUint(number, 10, 16); err == nil && port > 0 && cmp.Or(strings.ToLower(protocol), "tcp") == "tcp" {
			ports = append(ports, int32(port))
		}
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	return ports[:min(len(ports), maxPorts)]
}

// describeUser returns a warning for a user that nodes refuse, because instances may not run as root. This is not a
// failure, because an admission webhook may set another user for Pods in the namespace.
func describeUser(user string) string {
	id, _, _ := strings.Cut(user, ":")
	if number, err := strconv.ParseUint(id, 10, 32); err == nil && number > 0 {
		return ""
	}
	if len(user) > maxUserLength {
		user = user[:maxUserLength]
	}
	return fmt.Sprintf("expected an image with a numeric user other than 0, found %q; nodes refuse to start the image unless an admission webhook sets a user for its Pods", user)
}

// explainFailure returns the reason why the metadata of an image cannot be read.
func explainFailure(err error, named reference.Named) build.ImageAnswer {
	registry := reference.Domain(named)
	refused, isRefused := errors.AsType[*transport.Error](err)
	switch {
	case errors.Is(err, errUnreadableSecret):
		return build.ImageAnswer{Reason: korifiv1alpha1.PullSecretUnreadableReason, Message: "expected registry credentials in the Secrets of spec.source.registry.imagePullSecrets, found an unreadable Secret; create it again and push again"}
	case isRefused:
		return explainRefusal(refused, named)
	case errors.Is(err, errNotPublic), errors.Is(err, httpguard.ErrAddressDenied), errors.Is(err, errPlainHTTP):
		return build.ImageAnswer{Reason: korifiv1alpha1.RegistryNotAllowedReason, Message: "expected a public address and TLS for " + registry + " and for each server to which it refers, or entries of --image-registries, found a server with neither; ask the administrator to list it"}
	case errors.Is(err, httpguard.ErrAnswerTooLarge):
		return build.ImageAnswer{Reason: korifiv1alpha1.ImageUnreadableReason, Message: fmt.Sprintf("expected responses of %s of at most %d bytes and %d objects, found a larger response", registry, maxAnswerBytes, maxAnswerObjects)}
	case isSilence(err):
		return build.ImageAnswer{Reason: korifiv1alpha1.RegistrySilentReason, Message: fmt.Sprintf("expected a response of %s over TLS within %s, found none or an untrusted certificate; push again when the registry responds", registry, askTimeout)}
	default:
		return build.ImageAnswer{Reason: korifiv1alpha1.ImageUnreadableReason, Message: "expected " + registry + " to respond as a registry with an image for linux, found another response"}
	}
}

// explainRefusal distinguishes missing images from other errors of a registry.
func explainRefusal(refused *transport.Error, named reference.Named) build.ImageAnswer {
	isUnknown := slices.ContainsFunc(refused.Errors, func(d transport.Diagnostic) bool {
		return d.Code == transport.ManifestUnknownErrorCode || d.Code == transport.NameUnknownErrorCode
	})
	registry := reference.Domain(named)
	switch {
	case refused.StatusCode == http.StatusNotFound && isUnknown:
		return build.ImageAnswer{Reason: korifiv1alpha1.ImageMissingReason, Message: "expected the image " + reference.TagNameOnly(named).String() + ", found no such image in its registry; push the image there first, or use an existing image"}
	case refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden:
		return build.ImageAnswer{Reason: korifiv1alpha1.RegistryRefusedReason, Message: fmt.Sprintf("expected %s to accept the package's imagePullSecrets or anonymous requests, found status %d, which may also mean that the image does not exist; "+
			"nodes may have their own credentials; otherwise push with --docker-username", registry, refused.StatusCode)}
	default:
		return build.ImageAnswer{Reason: korifiv1alpha1.RegistryRefusedReason, Message: fmt.Sprintf("expected %s to return the image's manifest, found status %d", registry, refused.StatusCode)}
	}
}

// isSilence reports whether a server could not be reached, did not respond completely in time, or has an untrusted
// certificate.
func isSilence(err error) bool {
	_, isNetwork := errors.AsType[*net.OpError](err)
	_, isName := errors.AsType[*net.DNSError](err)
	_, isCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	return isNetwork || isName || isCertificate || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
