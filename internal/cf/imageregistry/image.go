// SPDX-License-Identifier: Apache-2.0

package imageregistry

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
	"github.com/torpor-dev/torpor/internal/egress"
)

const (
	// maxAnswerBytes and maxAnswerObjects are above the manifests and configurations of images that are run; all answers about one image
	// are bounded too. An empty object of JSON takes three bytes, and fifty times as much once it is decoded.
	maxAnswerBytes, maxAnswerObjects, maxImageBytes = 512 << 10, 10_000, 2 << 20
	// maxPorts of an image are used, as of a manifest.
	maxPorts = 10
	// maxUserLength is how much is shown of the user that an image names.
	maxUserLength = 32
)

// errNoImage says that something else has the name of the image.
var errNoImage = errors.New("the registry's answer is no image")

// errUnreadableSecret says that a Secret is none to pull images with. What is in it is not shown.
var errUnreadableSecret = errors.New("a Secret of spec.source.registry.imagePullSecrets cannot be read")

// imageReader asks one registry what an image is.
type imageReader struct {
	policy    Policy
	transport http.RoundTripper
}

// read returns what the registry says. Whatever fails is in the answer, in words of Torpor: a server that a tenant has named says
// nothing to others through them.
func (r imageReader) read(ctx context.Context, named reference.Named, secrets []corev1.Secret) build.ImageAnswer {
	descriptor, err := r.fetch(ctx, named, secrets)
	if err != nil {
		return explainFailure(err, named)
	}
	if !descriptor.MediaType.IsImage() && !descriptor.MediaType.IsIndex() {
		// Anything has a digest, also the page of a web server.
		return explainFailure(errNoImage, named)
	}
	pinned, err := pin(named, descriptor.Digest)
	if err != nil {
		return explainFailure(err, named)
	}
	answer := build.ImageAnswer{Image: pinned}
	config, err := readConfig(descriptor)
	if err != nil {
		answer.Message = "its ports and its user are not known: " + explainFailure(err, named).Message
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
		remote.WithTransport(egress.LimitTransport(&countedTransport{base: r.transport}, maxAnswerBytes, maxImageBytes)),
		// A build is asked for once: what fails now is told now.
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
}

// registryHost is the name of an image's registry without its port.
func registryHost(named reference.Named) string {
	domain := reference.Domain(named)
	if host, _, err := net.SplitHostPort(domain); err == nil {
		return host
	}
	return strings.Trim(domain, "[]")
}

// pin names an image by its digest. The tag stays for people: nodes ignore it beside a digest.
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

// readConfig reads the configuration of an image, or of one of the images that one name stands for on different machines.
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

// chooseImage takes the image for machines like the manager's, or else the first one for Linux: what they listen on differs in practice
// by their programs only.
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

// listPorts returns the TCP ports of EXPOSE, the lowest first, because an image keeps no order.
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

// describeUser warns of a user that nodes refuse, because instances may not run as root. It is no failure: an admission may give the Pods
// of a namespace a user of its own.
func describeUser(user string) string {
	id, _, _ := strings.Cut(user, ":")
	if number, err := strconv.ParseUint(id, 10, 32); err == nil && number > 0 {
		return ""
	}
	if len(user) > maxUserLength {
		user = user[:maxUserLength]
	}
	return fmt.Sprintf("expected the number of a user other than 0 that it runs as, found %q; nodes refuse it unless an admission gives its Pods a user", user)
}

// explainFailure says why nothing is known of an image.
func explainFailure(err error, named reference.Named) build.ImageAnswer {
	registry := reference.Domain(named)
	refused, isRefused := errors.AsType[*transport.Error](err)
	switch {
	case errors.Is(err, errUnreadableSecret):
		return build.ImageAnswer{Reason: korifiv1alpha1.PullSecretUnreadableReason, Message: "expected logins at registries in the Secrets of spec.source.registry.imagePullSecrets, found one that cannot be read; make it anew and push again"}
	case isRefused:
		return explainRefusal(refused, named)
	case errors.Is(err, errNotPublic), errors.Is(err, egress.ErrAddressDenied), errors.Is(err, errPlainHTTP):
		return build.ImageAnswer{Reason: korifiv1alpha1.RegistryNotAllowedReason, Message: "expected public addresses and TLS of " + registry + " and of the servers that it refers to, or entries of --image-registries for them, found one that has neither; ask the administrator to list it"}
	case errors.Is(err, egress.ErrAnswerTooLarge):
		return build.ImageAnswer{Reason: korifiv1alpha1.ImageUnreadableReason, Message: fmt.Sprintf("expected answers of %s of at most %d bytes and %d objects, found a longer one", registry, maxAnswerBytes, maxAnswerObjects)}
	case isSilence(err):
		return build.ImageAnswer{Reason: korifiv1alpha1.RegistrySilentReason, Message: fmt.Sprintf("expected %s to answer by TLS within %s, found that it does not, or has a certificate that is not trusted; push again once it does", registry, askTimeout)}
	default:
		return build.ImageAnswer{Reason: korifiv1alpha1.ImageUnreadableReason, Message: "expected " + registry + " to answer as a registry does, with an image for linux, found something else"}
	}
}

// explainRefusal tells an image that is not there from everything else that a registry may refuse.
func explainRefusal(refused *transport.Error, named reference.Named) build.ImageAnswer {
	isUnknown := slices.ContainsFunc(refused.Errors, func(d transport.Diagnostic) bool {
		return d.Code == transport.ManifestUnknownErrorCode || d.Code == transport.NameUnknownErrorCode
	})
	registry := reference.Domain(named)
	switch {
	case refused.StatusCode == http.StatusNotFound && isUnknown:
		return build.ImageAnswer{Reason: korifiv1alpha1.ImageMissingReason, Message: "expected the image " + reference.TagNameOnly(named).String() + ", found that its registry has none of this name; push the image there first, or name one that is there"}
	case refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden:
		return build.ImageAnswer{Reason: korifiv1alpha1.RegistryRefusedReason, Message: fmt.Sprintf("expected %s to let in whoever has the package's imagePullSecrets, or anybody, found status %d, which may also mean that there is no such image; "+
			"nodes may have logins of their own, otherwise push with --docker-username", registry, refused.StatusCode)}
	default:
		return build.ImageAnswer{Reason: korifiv1alpha1.RegistryRefusedReason, Message: fmt.Sprintf("expected %s to say what the image is, found status %d", registry, refused.StatusCode)}
	}
}

// isSilence reports whether a server could not be reached, did not answer in time or is not known by its certificate.
func isSilence(err error) bool {
	_, isNetwork := errors.AsType[*net.OpError](err)
	_, isName := errors.AsType[*net.DNSError](err)
	_, isCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	return isNetwork || isName || isCertificate || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
