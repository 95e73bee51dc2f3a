// SPDX-License-Identifier: Apache-2.0

// Package world is what the bench measures in: a real API server, CRDs that come and go, and what a process uses.
package world

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// serverLimit bounds the start and the stop of etcd and of the API server each.
const serverLimit = time.Minute

// Server is a kube-apiserver with its etcd, as envtest starts them.
type Server struct {
	env *envtest.Environment
	// Kubeconfig is that of an administrator.
	Kubeconfig []byte
}

// StartServer starts both, or leaves neither behind.
func StartServer() (*Server, error) {
	folder := os.Getenv("KUBEBUILDER_ASSETS")
	for _, program := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(folder, program)); folder == "" || err != nil {
			return nil, fmt.Errorf("expected the folder of etcd and kube-apiserver in KUBEBUILDER_ASSETS, found %q without %s: use `make bench-conditional`, or set it", folder, program)
		}
	}
	env := &envtest.Environment{
		UseExistingCluster:       new(false),
		ControlPlaneStartTimeout: serverLimit,
		ControlPlaneStopTimeout:  serverLimit,
	}
	if _, err := env.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the API server: %w", err), env.Stop())
	}
	return &Server{env: env, Kubeconfig: env.KubeConfig}, nil
}

// Stop ends both and removes their data.
func (s *Server) Stop() error {
	if err := s.env.Stop(); err != nil {
		return fmt.Errorf("stop the API server: %w", err)
	}
	return nil
}
