// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

const kubeconfigKey = "kubeconfig"

func kubeconfigSecretName(cd *hivev1.ClusterDeployment) string {
	if cd.Spec.ClusterMetadata == nil {
		return ""
	}
	return cd.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name
}

func (c Controller) readSecret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	var s corev1.Secret
	if err := c.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &s); err != nil {
		return nil, fmt.Errorf("read secret %s: %w", name, err)
	}
	return s.Data, nil
}

func explainSecretError(name string, err error) *hibernation.ObservationError {
	if k8serrors.IsNotFound(err) {
		return &hibernation.ObservationError{
			Class:   actuator.CredentialsMissing,
			Message: fmt.Sprintf("Expected the Secret %s in the namespace of the ClusterDeployment, found none; create it", name),
		}
	}
	return &hibernation.ObservationError{Class: actuator.Other, Message: fmt.Sprintf("The Secret %s cannot be read from the hub", name)}
}
