// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/torpor-dev/torpor/internal/httpguard"
)

// IsTooCostly reports whether a server used up the budget of a poll. Such a server is polled less often.
func IsTooCostly(err error) bool {
	return errors.Is(err, httpguard.ErrAnswerTooLarge) || errors.Is(err, errTooManyItems) || errors.Is(err, errTooManyNodes) ||
		errors.Is(err, errTooMuchToKeep)
}

// IsLasting reports whether an error has another cause than a server that is still starting.
func IsLasting(err error) bool {
	if _, ok := errors.AsType[*KubeconfigError](err); ok {
		return true
	}
	status, ok := errors.AsType[*k8serrors.StatusError](err)
	_, isUntrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return findOwnError(err) != nil || isUntrusted || k8serrors.IsUnauthorized(err) || ok && isRedirect(status.Status().Code)
}

// IsKubeconfigRefused reports whether the kubeconfig or the override of its server prevented the connection.
func IsKubeconfigRefused(err error) bool {
	_, isMissing := errors.AsType[*KubeconfigError](err)
	return isMissing || slices.ContainsFunc(kubeconfigErrors(), func(known error) bool { return errors.Is(err, known) })
}

// kubeconfigErrors returns the errors of kubeconfigs, and of overrides of their servers, that are refused.
func kubeconfigErrors() []error {
	return []error{errUnreadable, errForeign, errInsecure, errUnlistedProxy, errInsecureOverride, errUnverifiedOverride}
}

// IsRefusedForGood reports whether a server has permanently refused an action of these credentials. Three refusals are
// not permanent: a server that has not loaded all roles lists the missing roles in its message, a webhook may accept
// the next request, and objects in a namespace that is being deleted disappear anyway.
func IsRefusedForGood(err error) bool {
	status, ok := errors.AsType[*k8serrors.StatusError](err)
	if !ok || !k8serrors.IsForbidden(err) || k8serrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false
	}
	message := status.Status().Message
	return !strings.Contains(message, "RBAC: ") && !strings.Contains(message, "admission webhook ")
}

func isRedirect(code int32) bool {
	return code >= http.StatusMultipleChoices && code < http.StatusBadRequest
}

// findOwnError returns the known error that explains why a server or its kubeconfig is refused; nil if err wraps none.
func findOwnError(err error) error {
	for _, known := range append(kubeconfigErrors(),
		errTooManyItems, errTooManyNodes, errTooMuchToKeep, errMalformed, httpguard.ErrAnswerTooLarge, httpguard.ErrAddressDenied,
	) {
		if errors.Is(err, known) {
			return known
		}
	}
	return nil
}

// DescribeError describes in stable text why a request to a cluster failed. The text contains no ports, times or
// request ids, because it is shown in a condition and compared with the previous one.
func DescribeError(err error) string {
	if missing, ok := errors.AsType[*KubeconfigError](err); ok {
		return missing.Message
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Sprintf("the name %s cannot be resolved", dns.Name)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the server's certificate is not signed by the authority in the kubeconfig"
	}
	if bad, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if bad.Reason == x509.Expired {
			return "the server's certificate has expired or is not yet valid"
		}
		return "the server's certificate is not valid"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the server's certificate is for another name"
	}
	if known := findOwnError(err); known != nil {
		return known.Error()
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection is refused"
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return "no answer in time"
	case k8serrors.IsUnauthorized(err):
		return "the server refuses the credentials of the kubeconfig (401)"
	case k8serrors.IsForbidden(err):
		return "the kubeconfig's user lacks a permission (403)"
	}
	if status, ok := errors.AsType[*k8serrors.StatusError](err); ok {
		code := status.Status().Code
		if isRedirect(code) {
			return fmt.Sprintf("the server responds with a redirect (%d), which is not followed", code)
		}
		return fmt.Sprintf("the server responds with %d", code)
	}
	return "the connection fails"
}

func isTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}
