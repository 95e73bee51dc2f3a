// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// CreateBare makes a cluster of machines that run nothing, with the hub's own API as the cluster's: only its power can be
// observed. Benchmarks use it to count Torpor's own time, without the boot of a cluster.
func CreateBare(ctx context.Context, c Config, machines int) error {
	if err := c.validate(); err != nil {
		return err
	}
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return fmt.Errorf("resolve folder: %w", err)
	}
	if err := os.MkdirAll(c.controlPlaneDir(), 0o700); err != nil {
		return fmt.Errorf("make cluster folder: %w", err)
	}
	hub, err := os.ReadFile(c.HubKubeconfig)
	if err != nil {
		return fmt.Errorf("read hub kubeconfig: %w", err)
	}
	if err := os.WriteFile(c.adminKubeconfig(), hub, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	cloud := newCloudClient(c.Cloud, c.Region, c.AccessKey)
	for i := range machines {
		if err := cloud.runMachine(ctx, machineSpec{name: fmt.Sprintf("%s-%d", c.infraID(), i), infraID: c.infraID()}); err != nil {
			return err
		}
	}
	_, err = c.applyToHub(ctx)
	return err
}
