// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"net/http"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
)

// errorTable classifies responses by their status, and refused starts also by the message, because engines have no
// error codes. Engines also use 500 for errors of one container, such as a missing mount or image:
// https://docs.docker.com/reference/api/engine/version/v1.51/#tag/Container/operation/ContainerStart
func errorTable() errortable.Table {
	return append(errortable.Table{
		// Other programs may release the port, the memory or the disk space.
		{
			Phrases:    []string{portAllocated, addressInUse, "no space left on device", "cannot allocate memory"},
			Operations: []string{start}, Class: actuator.NoCapacity,
		},
		{
			Lowest: http.StatusInternalServerError, Highest: http.StatusInternalServerError, Operations: []string{start, stop},
			Class: actuator.Other,
		},
	}, errortable.ByStatus()...)
}

// Phrases of an engine that cannot assign a container's port.
const (
	portAllocated = "port is already allocated"
	addressInUse  = "address already in use"
)
